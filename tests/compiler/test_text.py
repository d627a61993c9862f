"""Functions written with numbers: LLVM must make of them what it makes of llvmlite's own text."""

import pytest
from llvmlite import ir

from nbtc.compiler.builder import F32, I1, I8, I32, I64, VectorBuilder, vector
from nbtc.compiler.machine_code import native
from nbtc.compiler.machine_code.text import function_text

POINTER = I8.as_pointer()
WORDS = vector(I32, 8)


def _module():
    module = ir.Module("test")
    module.triple = native.target()[0]
    return module


def _function(module, name="f", arguments=(POINTER, I32, I64), result=I32):
    function = ir.Function(module, ir.FunctionType(result, arguments), name)
    function.attributes.add("nounwind")
    return function, VectorBuilder(None, ir.IRBuilder(function.append_basic_block("entry")))


def _memory(function, v):
    p, n, at = function.args
    b = v.b
    place = b.alloca(ir.ArrayType(I32, 4), name="place")
    place.align = 16
    b.store(n, b.gep(place, [v.int(0), at], inbounds=True))
    v.store(v.load(p, WORDS, 4, at), p, 32, 64)
    counter = b.bitcast(b.gep(p, [at], source_etype=I8), I32.as_pointer())
    old = b.load_atomic(counter, "acquire", 4, typ=I32)
    b.store_atomic(b.add(old, n), counter, "release", 4)
    pair = b.cmpxchg(counter, n, old, "seq_cst", "seq_cst")
    b.atomic_rmw("add", counter, b.extract_value(pair, 0), "seq_cst")
    b.fence("seq_cst")
    b.ret(b.load(b.gep(place, [v.int(0), v.int(1)])))


def _vectors(function, v):
    p, n, at = function.args
    b = v.b
    x = v.load(p, WORDS, 4)
    y = v.splat(n, 8)
    z = b.select(b.icmp_signed("<", x, y), v.shuffle(x, y, [8, 1, 10, 3, 12, 5, 14, 7]), v.freeze(y))
    f = v.over("sqrt", b.fadd(b.sitofp(z, vector(F32, 8)), v.const(vector(F32, 8), 1.5), flags=["nnan"]))
    g = b.select(b.fcmp_ordered(">", f, v.bits(x, f.type)), f, v.const(f.type, 0.25))
    z = b.or_(v.truncated(g), v.const(WORDS, -3))
    z = b.insert_element(z, b.trunc(at, I32), b.and_(n, v.const(I32, 7)))
    b.ret(b.extract_element(b.shl(z, v.const(WORDS, 2), flags=["nuw"]), v.const(I32, 3)))


def _control(function, v):
    p, n, at = function.args
    b = v.b
    start = b.block
    loop, done, other = (function.append_basic_block(name) for name in ("loop", "a name", "other"))
    b.branch(loop)
    b.position_at_end(loop)
    count = b.phi(I32, name="n")
    count.add_incoming(n, start)
    less = b.sub(count, v.const(I32, 1))
    count.add_incoming(less, loop)
    b.cbranch(b.icmp_unsigned("!=", less, v.const(I32, 0)), loop, done).set_weights([99, 1])
    b.position_at_end(done)
    b.switch(b.trunc(at, I8), other).add_case(v.const(I8, 3), other)
    b.position_at_end(other)
    with b.if_then(b.icmp_unsigned("==", at, v.int(0)), likely=False):
        b.call(ir.InlineAsm(ir.FunctionType(ir.VoidType(), []), "", "", side_effect=True), [])
    with b.if_else(b.trunc(n, I1)) as (yes, no):
        with yes:
            v.store(n, p, 4)
        with no:
            v.store(at, p, 8)
    b.ret(b.zext(b.ptrtoint(b.inttoptr(at, POINTER), ir.IntType(16)), I32))


def _calls(function, v):
    p, n, at = function.args
    b = v.b
    module = b.module
    kind = ir.FunctionType(I32, [POINTER, I32])
    other = ir.Function(module, kind, "other")
    several = ir.Function(module, ir.FunctionType(I32, [POINTER], var_arg=True), "several")
    x = b.call(other, [p, n], tail=True)
    y = b.call(several, [p, x, at])
    z = b.call(b.inttoptr(at, kind.as_pointer()), [p, y], name="z")
    words = b.bitcast(p, I32.as_pointer())
    asm = ir.InlineAsm(ir.FunctionType(I32, [words.type]), "", "=r,*m")
    x = b.add(x, b.call(asm, [words], attrs=("readonly", "nounwind"), arg_attrs={0: ("elementtype",)}))
    pair = ir.Constant.literal_struct([v.const(I32, 1), v.const(I32, 2)])
    b.ret(b.extract_value(b.insert_value(pair, b.add(z, x), 1), 1))


@pytest.mark.parametrize("body", [_memory, _vectors, _control, _calls])
def test_code_is_that_of_llvmlites_text(body):
    made = []
    for written in (str, function_text):
        module = _module()
        function, v = _function(module)
        body(function, v)
        text = written(function)
        rest = [str(x) for x in module.globals.values() if x is not function]
        data = [f"!{n} = {str(x).partition('= ')[2] or x}" for n, x in enumerate(module.metadata)]
        head = f'target triple = "{module.triple}"'
        made.append((text, native.compile_text("\n".join([head, *rest, text, *data]), None)))
    (theirs, before), (ours, now) = made
    assert now == before
    assert '%"' in theirs and '%"' not in ours
