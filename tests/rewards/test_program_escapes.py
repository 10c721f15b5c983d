"""Hostile and careless programs: the grammar refuses each, and the process contains each when it is let past the grammar."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from robo_rl.errors import InvalidProgram, ProgramFailed
from robo_rl.rewards.programs import process
from robo_rl.rewards.programs.output_checks import Limits
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.programs.sandbox import Sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="system calls are filtered on Linux only")
HARMLESS, HARM = False, True
LATE = 3.0  # [s] by which a limit may be overrun
QUICK = Limits(seconds=0.3, memory=64 * 2**20)


def body(lines: str) -> str:
    """Returns a program with these lines before an honest end."""
    inside = textwrap.indent(textwrap.dedent(lines).strip("\n"), "    ")
    return f'def reward(batch):\n    x = batch["x"]\n{inside}\n    return x, {{}}\n'


def libc(call: str) -> str:
    """Returns a program that calls the C library and fails where that is refused."""
    return body(f"import ctypes\nc = ctypes.CDLL(None)\nassert c.{call} >= 0")


PARENT = os.getpid()
ESCAPED, CANARY = f"/tmp/robo-rl-{PARENT}-escaped.npy", f"/tmp/robo-rl-{PARENT}-canary"  # where anybody may write
ATTEMPTS = {  # name -> program, whether it is an escape when it runs to its end in the process
    # of the method's survey
    "import os": (body("import os\nos.listdir('/')"), HARM),
    "walk to all classes": (body("().__class__.__base__.__subclasses__()"), HARMLESS),
    "numpy saves a file": (body(f"np.save('{ESCAPED}', x)"), HARM),
    "numpy to C": (body("assert np.ctypeslib.ctypes.CDLL('libc.so.6').getppid() > 0"), HARM),
    "chance": (body("x = x + np.random.rand()"), HARMLESS),
    "made writable": (body("x.setflags(write=True)\nx[:] = 0"), HARM),
    "through the base": (body("x.base[:] = 0"), HARM),
    "memory in a default": ("def reward(batch, seen=[]):\n    seen.append(1)\n    return batch['x'], {}\n", HARMLESS),
    "global memory": (body("global seen\nseen = 1"), HARMLESS),
    "open": (body("open('/etc/passwd').read()"), HARM),
    "eval": (body("eval('__import__(\"os\").listdir(\"/\")')"), HARM),
    "exec": (body("exec('import os; os.listdir(\"/\")')"), HARM),
    "numpy unpickles": (body("np.load('/etc/passwd', allow_pickle=True)"), HARM),
    "numpy reads a file": (body("np.fromfile('/etc/passwd')"), HARM),
    "numpy reads text": (body("np.genfromtxt('/etc/passwd')"), HARM),
    "numpy maps a file": (body("np.memmap('/etc/passwd')"), HARM),
    "in place": (body("x += 1\nx[:] = 1"), HARM),
    # walks
    "walk by a format": (body("'{0.__class__}'.format(x)"), HARMLESS),
    "walk by an f-string": (body("f'{x.__class__.__mro__}'"), HARMLESS),
    "walk from a function": (body("np.where.__class__"), HARMLESS),
    "walk from a function to its module": (body(f"np.sum.__globals__['np'].save('{ESCAPED}', x)"), HARM),
    "getattr": (body(f"getattr(np, 'save')('{ESCAPED}', x)"), HARM),
    "vars": (body(f"vars(np)['save']('{ESCAPED}', x)"), HARM),
    "builtins by name": (body("__builtins__['open']('/etc/passwd')"), HARM),
    "underscore": (body("_np_sum(x)"), HARMLESS),
    "numpy itself": (body(f"n = np\nn.save('{ESCAPED}', x)"), HARM),
    "numpy in a list": (body(f"[np][0].save('{ESCAPED}', x)"), HARM),
    "frames": (body("(i for i in (1,)).gi_frame.f_back"), HARMLESS),
    # numpy's ways to write
    "out": (body("np.sqrt(np.abs(x), out=x)"), HARM),
    "out by position": (body("np.sqrt(np.abs(x), x)"), HARM),
    "out of a sum": (body("np.sum(x, 0, None, x[:1])"), HARM),
    "clip in place": (body("np.clip(x, 0.0, 1.0, x)"), HARM),
    "copyto": (body("np.copyto(x, 0)"), HARM),
    "put": (body("np.put(x, 0, 1.0)"), HARM),
    "fill": (body("x.fill(0)"), HARM),
    "sort in place": (body("x.sort(out=x)"), HARM),
    "objects": (body("np.array([x], dtype=object)"), HARMLESS),
    "where": (body("np.add(x, x, where=x > 0)"), HARMLESS),
    "vectorize": (body("np.vectorize(lambda v: v)(x)"), HARMLESS),
    "errors of numpy": (body("np.seterr(all='raise')"), HARMLESS),
    "numpy evaluates": (body("np.frompyfunc(print, 1, 1)"), HARMLESS),
    "records": (body("x.view(np.recarray)"), HARMLESS),
    "dump": (body(f"x.dump('{ESCAPED}')"), HARM),
    "to file": (body(f"x.tofile('{ESCAPED}')"), HARM),
    "pointer": (body("x.ctypes.data"), HARMLESS),
    # syntax
    "decorator": ("@print\ndef reward(batch):\n    return batch['x'], {}\n", HARMLESS),
    "executed annotation": ("def reward(batch: open('/etc/passwd')):\n    return batch['x'], {}\n", HARM),
    "executed result annotation": ("def reward(batch) -> print(1):\n    return batch['x'], {}\n", HARMLESS),
    "executed local annotation": (body("y: print(1) = x"), HARMLESS),
    "executed default": ("def reward(batch, f=open('/etc/passwd')):\n    return batch['x'], {}\n", HARM),
    "keyword-only default": ("def reward(batch, *, f=open('/etc/passwd')):\n    return batch['x'], {}\n", HARM),
    "nested function": (body("def inner():\n    return 1\ninner()"), HARMLESS),
    "recursion": (body("def f():\n    return f()\nf()"), HARM),
    "lambda": (body("(lambda: x)()"), HARMLESS),
    "comprehension": (body("y = [v for v in x]"), HARMLESS),
    "walrus": (body("y = (z := x)"), HARMLESS),
    "stars": (body("np.sum(*[x])"), HARMLESS),
    "double stars": (body("np.sqrt(x, **{'out': x})"), HARM),
    "match": (body("match x:\n    case _:\n        pass"), HARMLESS),
    "class": (body("class A:\n    pass"), HARMLESS),
    "try": (body("try:\n    y = 1\nexcept Exception:\n    y = 2"), HARMLESS),
    "with": (body("with open('/etc/passwd') as f:\n    y = f.read()"), HARM),
    "delete": (body("del x\nx = 1"), HARMLESS),
    "text times a number": (body("y = 'a' * 1000"), HARMLESS),
    "list times a number": (body("y = [0.0] * 1000"), HARMLESS),
    "code outside": ("import os\nos.listdir('/')\ndef reward(batch):\n    return batch['x'], {}\n", HARM),
    "store in a column": (body("batch['x'] = 0 * x"), HARMLESS),
    "attribute of the batch": (body("batch.clear()"), HARMLESS),
    "batch as a whole": (body("b = batch\nb.clear()"), HARMLESS),
    "another name for a function": (body("f = abs\nf(x)"), HARMLESS),
    "shadowed numpy": (body("np = batch"), HARMLESS),
    "imported numpy": (body(f"import numpy\nnumpy.save('{ESCAPED}', x)"), HARM),
    "from numpy": ("from numpy import save\n" + body(f"save('{ESCAPED}', x)"), HARM),
    "relative import": ("from . import typing\n" + body("y = x"), HARMLESS),
    # the machine
    "environment": (body("import os\nassert os.environ"), HARM),
    "processes listed": (body("import os\nos.listdir('/proc')"), HARM),
    "memory of the parent": (body(f"open('/proc/{PARENT}/mem', 'rb').read(1)"), HARM),
    "own memory as a file": (body("import os\nos.open('/proc/self/mem', os.O_RDWR)"), HARM),
    "end the parent": (body(f"import os, signal\nos.kill({PARENT}, 0)"), HARM),  # 0 asks for the right
    "end everything": (body("import os\nos.kill(-1, 0)"), HARM),
    "other signal handler": (body("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)"), HARM),
    "fork": (body("import os\nos.fork()"), HARM),
    "other program": (body("import os\nos.execv('/bin/true', ['/bin/true'])"), HARM),
    "shell": (body("import os\nassert os.system('true') == 0"), HARM),
    "thread": (body("import threading\nthreading.Thread(target=print).start()"), HARM),
    "higher limit": (body("import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (99, 99))"), HARM),
    "change folder": (body("import os\nos.chdir('/tmp')"), HARM),
    "remove a file": (body(f"import os\nos.unlink('{CANARY}')"), HARM),
    "truncate the memory": (body("import os\nfor h in range(64):\n    try:\n        os.ftruncate(h, 0)\n        break\n"
                                 "    except OSError:\n        pass\nelse:\n    raise OSError"), HARM),
    "closed line": (body("import os\nfor h in range(1024):\n    try:\n        os.close(h)\n        break\n"
                         "    except OSError:\n        pass\nelse:\n    raise OSError"), HARM),
    "socket": (libc("socket(2, 1, 0)"), HARM),
    "local socket": (libc("socketpair(1, 1, 0, (ctypes.c_int * 2)())"), HARM),
    "trace the parent": (libc(f"ptrace(16, {PARENT}, 0, 0)"), HARM),
    "read the parent": (libc(f"process_vm_readv({PARENT}, 0, 0, 0, 0, 0)"), HARM),
    "memory for code": (body("import ctypes\nc = ctypes.CDLL(None)\nc.mmap.restype = ctypes.c_long\n"
                              "assert c.mmap(None, 4096, 7, 0x22, -1, 0) != -1"), HARM),
    "turn memory into code": (body("import ctypes\nc = ctypes.CDLL(None)\nc.mmap.restype = ctypes.c_long\n"
                                   "here = c.mmap(None, 4096, 3, 0x22, -1, 0)\n"
                                   "assert c.mprotect(ctypes.c_void_p(here), 4096, 7) == 0"), HARM),
    "ring of requests": (libc("syscall(425, 1, 0)"), HARM),
    "name space": (libc("unshare(0x10000000)"), HARM),
    "new memory file": (libc("memfd_create(b'x', 0)"), HARM),
    "no filter": (libc("prctl(22, 0, 0, 0, 0)"), HARM),
    "core": (libc("sched_setaffinity(0, 8, ctypes.byref(ctypes.c_long(1)))"), HARM),
    "priority": (libc("setpriority(0, 0, -20)"), HARM),
    "other user": (libc("setuid(0)"), HARM),
    "32-bit pointer of a key": (libc("syscall(250, 0, 0, 0, 0, 0)"), HARM),
}  # fmt: skip
TOO_LARGE = {
    "endless loop": "while True:\n    pass",
    "tower of powers": "y = 9 ** 9 ** 9",
    "power to text": "y = len(str(9 ** (9 ** 7)))",
    "exponent from a name": "n = 10\ny = x ** n",
    "power function": "y = np.power(x, 99)",
    "large number": "y = 10_000_000_000 * x",
    "infinite number": "y = 1e999 * x",
    "division of huge numbers": "y = (1 << 4000) / 3",
    "long loop": "for i in range(100_000):\n    y = x",
    "loops in loops": "for i in range(60):\n    for j in range(60):\n        y = x",
    "loop over rows": "for v in x:\n    y = v",
    "range of rows": "for i in range(len(x)):\n    y = x[i]",
    "outer product by letters": "y = np.einsum('abcdefgh,ijklmnop->abcdefghijklmnop', x, x)",
    "letters from a name": "s = 'n,n->n'\ny = np.einsum(s, x, x)",
    "many operands": "y = np.einsum('n,n,n,n,n->n', x, x, x, x, x)",
    "long text": f"y = batch['{'a' * 70}']",
    "many lines": "\n".join(["y = x"] * 210),
    "many nodes": "y = " + "+".join(["x"] * 1100),
    "deep nesting": "y = " + "(" * 250 + "x" + ")" * 250,
    "deep minus": "y = " + "-" * 1500 + "x",
    "tall number": "y = " + "9" * 5000,
    "more letters than a program has": "y = x  # " + "a" * 21_000,
}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_the_grammar_refuses(name):
    with pytest.raises(InvalidProgram) as refused:
        RewardProgram.parse(ATTEMPTS[name][0])
    assert refused.value.status in {"forbidden", "signature"} and len(str(refused.value)) < 4000


@pytest.mark.parametrize("name", TOO_LARGE)
def test_the_grammar_refuses_what_is_too_large(name):
    with pytest.raises(InvalidProgram) as refused:
        RewardProgram.parse(body(TOO_LARGE[name]))
    assert refused.value.status in {"forbidden", "too large", "syntax"} and len(str(refused.value)) < 4000


class Ungated(Sandbox):
    """Runs any code at all, with all of Python and numpy at hand: what is left is what the process does not let it do."""

    system_calls = True

    def __init__(self, code: str, limits: Limits = QUICK, terms: tuple[str, ...] = ()) -> None:
        super().__init__(RewardProgram(source=code, code=code, terms=terms, columns=("x",)), limits)

    def _settings(self, layout):
        return super()._settings(layout) | {"is_free": True} | ({} if self.system_calls else {"system_calls": ""})


class Unfiltered(Ungated):
    """And without the filter of system calls."""

    system_calls = False


HONEST = RewardProgram.parse("def reward(batch):\n    return 2.0 * batch['x'], {'x': batch['x']}")
ALL = """
def reward(batch):
    ran = np.zeros(len(batch["x"]))
    for number, text in enumerate(TEXTS):
        space = {"np": np, "__builtins__": __builtins__}
        try:
            exec(text, space)
            space["reward"](dict(batch))
            ran[number] = 1.0
        except BaseException as error:
            pass
    return ran, ()
"""


def test_no_escape_from_process_behind_the_grammar():
    canary, escaped = Path(CANARY), Path(ESCAPED)
    canary.write_text("here")
    column = np.linspace(0.0, 1.0, len(ATTEMPTS))
    before = column.tobytes()
    code = f"TEXTS = {[text for text, _ in ATTEMPTS.values()]!r}\n{ALL}"
    with Ungated(code, Limits(seconds=20.0)) as sandbox:
        ran = sandbox.run({"x": column}).total
        assert sandbox.guards[-1] == "seccomp"
    out = [name for (name, (_, harm)), done in zip(ATTEMPTS.items(), ran, strict=True) if harm and done]
    assert out == []
    assert ran.sum() > 10  # the attempts were really made: what is harmless there does run
    assert column.tobytes() == before and canary.read_text() == "here" and not escaped.exists()
    canary.unlink()
    still_works()


def still_works():
    with Sandbox(HONEST) as sandbox:
        rewards = sandbox.run({"x": np.array([1.0, 2.0])})
    assert rewards.total.tolist() == [2.0, 4.0] and rewards.valid.all()


WRITE = "import os\n    for h in range(1024):\n        try:\n            os.write(h, {what})\n"
WRITE += "        except OSError:\n            pass"
KILLERS = {  # name -> (code, statuses by which it may end)
    "endless loop": ("while True:\n        pass", {"timeout"}),
    "one endless call": ("str(9 ** (9 ** 8))", {"timeout", "memory"}),
    "one large array": ("np.ones(10 ** 11)", {"memory"}),
    "more and more": ("a = []\n    while True:\n        a.append(np.ones(10 ** 6))", {"memory", "timeout"}),
    "endless list": ("a = [0]\n    while True:\n        a += a", {"memory", "timeout"}),
    "exit": ("import os\n    os._exit(0)", {"killed"}),
    "polite exit": ("raise SystemExit", {"raised"}),
    "segmentation fault": ("import ctypes\n    ctypes.string_at(0)", {"killed"}),
    "deep recursion": ("import sys\n    sys.setrecursionlimit(10**9)\n    f = lambda: f()\n    f()",
                       {"killed", "memory", "raised", "timeout"}),
    "garbage": (WRITE.format(what="b'zzzz'"), {"protocol"}),
    "flood": ("while True:\n        " + WRITE.replace("\n", "\n    ").format(what="b'd' * 4096"), {"protocol"}),
    "lie": (WRITE.format(what="b'd'") + "\n    while True:\n        pass", {"not finite"}),
    "silence": ("import os\n    while True:\n        for h in range(64):\n            try:\n                os.read(h, 1)\n"
                "            except OSError:\n                pass", {"timeout"}),
    "words that raise": ("class E(Exception):\n        def __str__(self):\n            raise self\n    raise E", {"raised"}),
    "words that never end": ("raise ValueError('\\x1b[2J' + 'a' * 10**6)", {"raised"}),
    "result without shape": ("class A:\n        shape = property(lambda self: 1 / 0)\n    return A(), ()", {"raised", "shape"}),
    "objects": ("return np.array([object()] * 3), ()", {"raised"}),
    "other number of terms": ("return batch['x'], (batch['x'],) * 9", {"raised"}),
}  # fmt: skip


@pytest.mark.parametrize("name", KILLERS)
def test_hostile_program_harms_only_itself(name):
    code, statuses = KILLERS[name]
    column = np.array([1.0, 2.0, 3.0])
    innocent = 'if batch["x"][0] == 0:\n        return batch["x"], ()'
    with Ungated(f"def reward(batch):\n    {innocent}\n    {code}\n    return batch['x'], ()") as sandbox:
        assert sandbox.run({"x": 0 * column}).valid.all()
        started = time.perf_counter()
        with pytest.raises(ProgramFailed) as failed:
            sandbox.run({"x": column})
        passed = time.perf_counter() - started
        assert sandbox.guards == ()  # the process is ended
    assert failed.value.status in statuses and len(str(failed.value)) < 5000 and "\x1b" not in str(failed.value)
    assert passed < QUICK.seconds + LATE
    assert column.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.slow
def test_the_end_of_its_core_time_is_a_timeout_too(monkeypatch):
    """On a busy machine the kernel may end a process before the clock on the wall does."""
    monkeypatch.setattr(process, "KILLED", 0.0)
    sandbox = Ungated("def reward(batch):\n    while True:\n        pass", Limits(seconds=60.0))
    with sandbox, pytest.raises(ProgramFailed, match="took too long") as failed:
        sandbox.run({"x": np.array([1.0])})
    assert failed.value.status == "timeout"


def test_without_the_filter_the_limits_still_hold():
    code = """
import os
def tried(work):
    try:
        work()
        return 1.0
    except OSError:
        return 0.0
def open_handles():
    return sum(tried(lambda: os.fstat(h)) for h in range(1024))
def reward(batch):
    return np.array([tried(lambda: open("/etc/passwd")), tried(os.fork), open_handles(),
                     len(os.environ), float(os.geteuid() > 0)]), ()
"""
    with Unfiltered(code) as sandbox:
        read, forked, handles, variables, user = sandbox.run({"x": np.zeros(5)}).total
        assert "seccomp" not in sandbox.guards
    assert (read, forked, handles, variables) == (0.0, 0.0, 2.0, 0.0) and user != 0


def test_columns_in_the_process_are_not_those_of_the_parent():
    code = "def reward(batch):\n    return batch['x'].flags.writeable + 0.0 * batch['x'], ()"
    with Ungated(code) as sandbox:
        assert sandbox.run({"x": np.ones(2)}).total.tolist() == [0.0, 0.0]


ORPHAN = """
import sys
import numpy as np
from robo_rl.rewards.programs import process
from robo_rl.rewards.programs.output_checks import Limits
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.programs.sandbox import Sandbox

code = "def reward(batch):\\n    while batch['x'][0]:\\n        pass\\n    return batch['x'], ()"


class Ungated(Sandbox):
    def _settings(self, layout):
        return super()._settings(layout) | {"is_free": True}


sandbox = Ungated(RewardProgram(code, code, (), ("x",)), Limits(seconds=60.0))
sandbox.run({"x": np.zeros(2)})
print(sandbox._process.process.pid, flush=True)
sandbox.run({"x": np.ones(2)})
"""


@pytest.mark.slow
def test_the_process_ends_with_its_parent_however_that_ended():
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE)
    child = int(parent.stdout.readline())
    assert Path(f"/proc/{child}").exists()
    time.sleep(0.1)  # it is computing by now, and hears nothing
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 30
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _runs(child)


def _runs(process: int) -> bool:
    status = Path(f"/proc/{process}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
