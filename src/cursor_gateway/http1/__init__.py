"""HTTP/1.1: a parser and an encoder without I/O, and the server around them."""
