"""x"""
def api_page(d: object, b: str) -> str: return ""
def api_style() -> str: return ""
