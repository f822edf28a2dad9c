"""This machine in; what kind it is, in a few words and without its name, out."""

import os
import platform
import sysconfig
from pathlib import Path


def kind() -> str:
    return ", ".join([_processor(), f"{os.cpu_count()} cores", _memory(), _kernel(), _python()])


def busy() -> str:
    """A warning, when others use this machine, too. To be asked before anything is measured."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load < cores / 2:
        return ""
    return f"The machine was busy with other things (load average {load:.1f}, {cores} cores): times say less."


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return " ".join(value.replace("(R)", "").replace("(TM)", "").split())
    return platform.machine()


def _kernel() -> str:
    return f"Linux {'.'.join(platform.release().split('.')[:2])}"  # the rest names whoever built it


def _memory() -> str:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return f"{pages * size / 2**30:.0f} GiB"


def _python() -> str:
    is_optimized = "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS"))
    built = "" if is_optimized else " built without profile-guided optimisation"
    return f"{platform.python_implementation()} {platform.python_version()}{built}"
