"""Write nbtc/libcuda/tables/: the functions of CUDA's driver and runtime, read from their public headers.

    python scripts/cuda_tables.py [INCLUDE [LIBCUDART [INCLUDE_OF_NVRTC_AND_NVJITLINK]]]

One line a function: its exported name, the name it has for `cuGetProcAddress`, the CUDA version it came with (of
cudaTypedefs.h; 0 where that has none) and the types of its result and parameters.  Names of the runtime's functions
are those that its shared library exports.  Needs gcc and nm.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

TABLES = Path(__file__).resolve().parents[1] / "nbtc" / "libcuda" / "tables"
MODES = ("-D__CUDA_API_VERSION_INTERNAL", "-DNONE", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM")
PROPERTIES = "cudaDeviceProp"
# crt/host_runtime.h and crt/device_functions.h, which nvcc's output includes, spelled with the types of C
REGISTRATION = {
    "__cudaRegisterFatBinary": "void**(void*)",
    "__cudaRegisterFatBinaryEnd": "void(void**)",
    "__cudaUnregisterFatBinary": "void(void**)",
    "__cudaRegisterVar": "void(void**,char*,char*,char*,int,size_t,int,int)",
    "__cudaRegisterManagedVar": "void(void**,void**,char*,char*,int,size_t,int,int)",
    "__cudaInitModule": "char(void**)",
    "__cudaRegisterFunction": "void(void**,char*,char*,char*,int,uint3*,uint3*,dim3*,dim3*,int*)",
    "__cudaPushCallConfiguration": "unsigned int(dim3,dim3,size_t,cudaStream_t)",
    "__cudaPopCallConfiguration": "cudaError_t(dim3*,dim3*,size_t*,void*)",
    "__cudaGetKernel": "cudaError_t(cudaKernel_t*,void*)",
    "__cudaLaunchKernel": "cudaError_t(cudaKernel_t,dim3,dim3,void**,size_t,cudaStream_t)",
    "__cudaLaunchKernel_ptsz": "cudaError_t(cudaKernel_t,dim3,dim3,void**,size_t,cudaStream_t)",
    "__cudaRegisterHostVar": "void(void**,char*,char*,size_t)",
}


def preprocessed(include: str, header: str, mode: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "a.c")
        source.write_text(f"#include <{header}>\n")
        command = ["gcc", "-E", "-P", mode, f"-I{include}", str(source)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.sub(r"\s+", " ", re.sub(r"__attribute__\(\([^()]*(\([^()]*\))?\)\)", " ", text))


def parameters(text: str) -> list[str]:
    """A list of parameters, cut at the commas outside of parentheses."""
    found, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and not depth:
            found.append("")
        else:
            found[-1] += c
    return [p.strip() for p in found if p.strip() not in ("", "void")]


def plain_type(parameter: str) -> str:
    """The type of a parameter, without its name and qualifiers."""
    text = re.sub(r"\b(const|struct|enum|volatile)\b", " ", parameter)
    if "(" in text:
        return "void*"
    stars = text.count("*") + text.count("[")
    words = re.sub(r"\[[^\]]*\]|\*", " ", text).split()
    whole = {"int", "long", "char", "short", "unsigned", "void", "float", "size_t"}
    if len(words) > 1 and words[-1] not in whole:
        words = words[:-1]
    return " ".join(words) + "*" * stars


def functions(text: str, prefix: str) -> dict[str, str]:
    pattern = rf"([A-Za-z_][\w ]*?[\w*]) ?(\**)((?:__)?{prefix}[A-Z]\w*)\(([^;{{}}]*?)\);"
    found: dict[str, str] = {}
    for result, stars, name, arguments in re.findall(pattern, text):
        if "typedef" in result or "return" in result:
            continue
        kind = re.sub(r"\b(extern|const|struct|enum|static|inline)\b", " ", result).split()
        signature = ",".join(plain_type(p) for p in parameters(arguments))
        found.setdefault(name, f"{' '.join(kind)}{stars}({signature})")
    return found


def versions(include: str, exported: dict[str, str]) -> dict[str, tuple[str, int]]:
    """Of each exported name the name it is asked for by, and the version it came with.

    cudaTypedefs.h names a type for each version of a function, cuda.h exports their names with _v2 and so on: the
    newest of both lists belong together, and so on downwards.
    """
    text = Path(include, "cudaTypedefs.h").read_text()
    plain: dict[str, set[int]] = {}
    threads: dict[str, set[int]] = {}  # those of the variants for threads' streams, which came later
    for base, version, end in re.findall(r"PFN_(cu\w+?)_v(\d+)(_pt[ds][sz])?\)", text):
        (threads if end else plain).setdefault(base, set()).add(int(version))
    found = {}
    for base, known in (threads | plain).items():
        names = [n for n in (base, *(f"{base}_v{i}" for i in range(2, 9))) if n in exported]
        for name, version in zip(reversed(names), sorted(known, reverse=True), strict=False):
            for end in ("", "_ptsz", "_ptds"):
                found[name + end] = (base, version)
    return found


def fields(include: str) -> str:
    """Offset and bytes of each field of cudaDeviceProp, which has no other name."""
    text = preprocessed(include, "cuda_runtime_api.h", MODES[1])
    body = re.search(rf"struct +{PROPERTIES} *\{{(.*?)\}} *;", text)[1]
    names = [re.sub(r"\[.*", "", f.split()[-1]) for f in body.split(";") if f.strip()]
    lines = [f'printf("{n} %zu %zu\\n", offsetof(struct {PROPERTIES}, {n}), sizeof p.{n});' for n in names]
    source = f"#include <cuda_runtime_api.h>\n#include <stdio.h>\n#include <stddef.h>\nstruct {PROPERTIES} p;\n"
    source += f'int main(void) {{ {" ".join(lines)} printf("- %zu 0\\n", sizeof p); }}'
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.c").write_text(source)
        subprocess.run(["gcc", f"-I{include}", "-o", f"{folder}/a", f"{folder}/a.c"], check=True)
        return subprocess.run([f"{folder}/a"], capture_output=True, text=True, check=True).stdout


def errors(include: str, header: str, kind: str) -> str:
    text = preprocessed(include, header, MODES[1])
    body = re.search(rf"enum +{kind} *\{{(.*?)\}}", text)[1]
    return "".join(f"{int(n)} {name}\n" for name, n in re.findall(r"(\w+) *= *(\d+)", body))


def attributes(include: str) -> str:
    text = preprocessed(include, "cuda.h", MODES[1])
    body = re.search(r"enum +CUdevice_attribute_enum *\{(.*?)\}", text)[1]
    found = {}
    for name, n in re.findall(r"CU_DEVICE_ATTRIBUTE_(\w+) *= *(\d+)", body):
        found.setdefault(int(n), name)
    return "".join(f"{n} {name}\n" for n, name in sorted(found.items()))


COMPILERS = {"nvrtc": "nvrtc.h", "nvjitlink": "nvJitLink.h"}


def earlier(name: str) -> list[str]:
    """A function's names with its version and those before of the same CUDA: programs keep what their headers had."""
    found = re.fullmatch(r"(.*_\d+_)(\d+)", name)
    return [f"{found[1]}{n}" for n in range(int(found[2]) + 1)] if found else [name]


def compiler(include: str, which: str) -> str:
    """The functions of NVRTC or nvJitLink, by all names that their public header gives them."""
    text = Path(include, COMPILERS[which]).read_text()
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
    pattern = r"(nvrtcResult\s|nvJitLinkResult\s|const char *\*)\s*((?:__)?(?:nvrtc|nvJitLink)\w+)\s*\(([^;{}]*?)\)\s*;"
    found = {}
    for result, name, arguments in re.findall(pattern, text):
        kinds = ",".join(plain_type(p) for p in parameters(" ".join(arguments.split())))
        plain = re.sub(r"^__|_\d+_\d+$", "", name)  # of the header's own functions
        for n in (*earlier(name), plain):
            found[n] = f"{'char*' if '*' in result else result.strip()}({kinds})"
    return "".join(f"{n} {n} 0 {s}\n" for n, s in sorted(found.items()))


def main(include: str, library: str, compilers: str) -> None:
    driver: dict[str, str] = {}
    runtime: dict[str, str] = dict(REGISTRATION)
    for mode in MODES:
        driver |= {
            n: s for n, s in functions(preprocessed(include, "cudaProfiler.h", mode), "cu").items() if n not in driver
        }
        more = functions(preprocessed(include, "cuda_runtime_api.h", mode), "cuda")
        runtime |= {n: s for n, s in more.items() if n not in runtime}
    symbols = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[2].split("@")[0] for line in symbols.splitlines() if " T " in line}
    known = versions(include, driver)
    rows = [(n, *known.get(n, (n, 0)), s) for n, s in sorted(driver.items()) if s.startswith("CUresult")]
    TABLES.mkdir(exist_ok=True)
    (TABLES / "driver.txt").write_text("".join(f"{n} {base} {v} {s}\n" for n, base, v, s in rows))
    rest = sorted(exported - runtime.keys() - {"__cudaRegisterUnifiedTable", "__cudaGetProcAddress"})
    runtime = {n: s for n, s in runtime.items() if n in exported} | dict.fromkeys(rest, "cudaError_t()")
    (TABLES / "runtime.txt").write_text("".join(f"{n} {n} 0 {s}\n" for n, s in sorted(runtime.items())))
    for which in COMPILERS:
        (TABLES / f"{which}.txt").write_text(compiler(compilers, which))
    (TABLES / "properties.txt").write_text(fields(include))
    (TABLES / "driver_errors.txt").write_text(errors(include, "cuda.h", "cudaError_enum"))
    (TABLES / "runtime_errors.txt").write_text(errors(include, "cuda_runtime_api.h", "cudaError"))
    (TABLES / "attributes.txt").write_text(attributes(include))
    print(len(rows), "of the driver,", len(runtime), "of the runtime; without a signature:", *rest)


if __name__ == "__main__":
    given = sys.argv[1:]
    defaults = ["/usr/local/cuda/include", "/usr/local/cuda/lib64/libcudart.so", "/usr/local/cuda/include"]
    main(*(given + defaults[len(given) :]))
