"""What of a folder is worth sharing, what in it tells of a person or a machine, and how the Hub's buckets answer.

Sources are beside the constants. "hub" stands for huggingface_hub 2.4.0 (src/huggingface_hub in its repository), "xet"
for hf_xet 1.8.0, both read and tried against a local server.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

__all__ = [
    "BATCH_BYTES",
    "BATCH_FILES",
    "BUCKET_NAME",
    "COMMAND_KEYS",
    "COMMAND_LINE",
    "COMMON_NAMES",
    "CONNECT_TIMEOUT_S",
    "CREDENTIAL",
    "DEVICE_NAME",
    "FOLDERS_LEFT_OUT",
    "FOREIGN_PATH",
    "FRAME",
    "HOST_KEYS",
    "HTTP_STATUS",
    "MAIL",
    "NETWORK_ADDRESS",
    "PATH",
    "PLACEHOLDERS",
    "QUOTA_STATUSES",
    "QUOTA_WORDS",
    "RATE_LIMIT_PATIENCE_S",
    "RATE_LIMIT_RESET",
    "RATE_LIMIT_WAIT_S",
    "RESOLVE",
    "RESPONSE_TIMEOUT_S",
    "STACK_KEYS",
    "TENSORBOARD_FILE",
    "USER_IN_PATH",
    "USER_KEYS",
    "WINDOWS_PATH",
    "Category",
    "Kind",
]


class Kind(StrEnum):
    """What a file in a folder of traces is."""

    TRACE = "trace"
    TABLE = "table"
    DOCUMENT = "document"  # JSON that foretrace wrote: side files, reports
    REPORT = "HTML report"
    SNAPSHOT = "memory snapshot"
    OTHER = "other"  # taken only because it was named


class Category(StrEnum):
    """What redaction takes out."""

    PATHS = "paths"
    USERS = "users"
    COMMANDS = "commands"
    STACKS = "stacks"


# --- which files -----------------------------------------------------------------------------------------------------

# Caches and version control: nothing in them was left there to be looked at.
FOLDERS_LEFT_OUT: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})

# torch.profiler.tensorboard_trace_handler names its files HOST_PID.NANOSECONDS.pt.trace.json[.gz], where HOST is
# socket.gethostname() (torch/profiler/profiler.py).
TENSORBOARD_FILE: Final = re.compile(r"(?:^|[\\/])(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*)_\d+\.\d+\.pt\.trace\.json")

# --- what tells of a person or a machine -----------------------------------------------------------------------------

PLACEHOLDERS: Final = {
    "user": "user",
    "host": "host",
    "command": "command removed",
    "frame": "frame removed",
    "home": "home",  # a home folder itself, whose last part is the user's name
    "folder": "folder",  # a path that ends in a slash
}

# A path inside a text: a slash that no word is before, and at least two parts, which may hold single spaces; its last
# part is kept. `..` and `~` at its beginning, a scheme (file://, s3://) and slashes written as %2F belong to it.
_PART: Final = r"[^\s/\\\"'<>|;*]+(?: [^\s/\\\"'<>|;*]+)*"
PATH: Final = re.compile(
    r"(?:(?<![\w.~/\\-])(?:[A-Za-z][A-Za-z0-9+.-]*:)?/{1,3}|(?<![\w.~/\\-])(?:\.\./)+|(?<![\w/\\])~[\w.-]*/"
    # Stuck to a word (-I/usr/include, x=1/home/me) only where its first part is a folder that systems have.
    r"|(?<=\w)/(?=(?:home|Users|root|mnt|opt|usr|var|tmp|etc|srv|scratch|data|workspace)/))"
    rf"(?P<folders>(?:{_PART}/+)*)(?P<last>[^\s/\\\"'<>|;]*)"
)
# C:\Users\me\x.py, C:/Users/me/x.py and \\server\share\x.py.
WINDOWS_PATH: Final = re.compile(
    rf"(?:(?<![\w])[A-Za-z]:[\\/]+|(?<![\w\\])\\\\(?=[\w.-]+\\))(?P<folders>(?:{_PART}[\\/]+)*)(?P<last>[^\s/\\\"'<>|;]*)"
)
# A path whose slashes are written as %2F, as URLs have them.
FOREIGN_PATH: Final = re.compile(r"(?P<folders>(?:%2[Ff][^\s%/]+)+)%2[Ff](?P<last>[^\s%/]*)")

# Where a path says whose it is: home folders, and the caches that are named after a user
# (torch/_inductor/runtime/cache_dir_utils.py: $TMPDIR/torchinductor_USER; slurm and systemd: /run/user/ID).
USER_IN_PATH: Final = re.compile(
    r"(?:(?:/|\\|%2[Ff])(?:home|Users)(?:/|\\+|%2[Ff])|torchinductor_|\btorch_extensions_|(?<![\w/])~(?=[A-Za-z][\w.-]*/))"
    r"(?P<user>[^\s/\\%\"':;,<>|]+(?: [^\s/\\%\"':;,<>|]+)*(?=[/\\%])|[^\s/\\%\"':;,<>|]+)"
)

# Keys, in lower case, whose values name a person or a machine.
USER_KEYS: Final = frozenset({"user", "username", "user_name", "logname", "login", "owner", "author", "email"})
HOST_KEYS: Final = frozenset(
    {"host", "hostname", "host_name", "node", "nodename", "node_name", "fqdn", "computer_name", "computername",
     "master_addr", "ip", "ip_address", "worker_name", "slurmd_nodename"}
)  # fmt: skip
MAIL: Final = re.compile(
    r"(?<![\w.+-])(?P<user>[\w.+-]+)@(?P<host>[A-Za-z][\w-]*(?:\.[\w-]+)*|(?:\d{1,3}\.){3}\d{1,3})"
)
# An address with a scheme or a port; four numbers alone may as well be a version (cuBLAS 12.8.4.1).
NETWORK_ADDRESS: Final = re.compile(
    r"(?<=://)(?:(?:\d{1,3}\.){3}\d{1,3}|[A-Za-z][\w-]*(?:\.[\w-]+)*)(?=[:/]|$)|(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?=:\d)"
)

# Names that are taken out only where they are known to be names (home folders, keys such as "username"), for as words
# they also stand in the names of kernels, operators and devices: accounts that everybody has, and what work is called.
COMMON_NAMES: Final = frozenset(
    {"root", "user", "users", "host", "localhost", "admin", "ubuntu", "debian", "centos", "ec2-user", "runner",
     "docker", "jovyan", "vscode", "app", "worker", "node", "home", "shared", "public", "default", "nobody",
     "python", "torch", "pytorch", "triton", "cuda", "nvidia", "amd", "rocm", "aten", "void", "kernel", "conda",
     "jenkins", "github", "gitlab", "data", "work", "workspace", "project", "projects", "test", "tests", "model",
     "models", "train", "eval", "trace", "traces", "name", "args", "float", "int", "bool", "half", "char", "long",
     "the", "command", "frame", "removed", "folder", "max", "min", "sum", "mean", "add", "mul", "div", "sub", "exp",
     "log", "cat", "copy", "fill", "sort", "norm", "mask", "loss", "grad", "step", "relu", "gelu", "silu", "conv",
     "bmm", "mm", "dot", "abs", "pow", "sin", "cos", "tan", "all", "any", "nan", "inf", "out", "key", "value",
     "query", "index", "image", "text", "stream", "device", "memory", "batch", "layer", "block", "grid", "warp",
     "main", "forward", "backward", "linear", "gemm", "addmm", "attn", "attention", "softmax", "embedding",
     "dropout", "sample", "stack", "view", "dim", "size", "time", "run", "rank", "world", "nccl", "cpu", "gpu",
     "amax", "amin", "argmax", "argmin", "clamp", "cumsum", "where", "scatter", "gather", "flash", "rms", "tile",
     "wave", "ray", "adam"}
)  # fmt: skip
# GPUs and their architectures, after which machines are named as well: h200, mi300x, sm90, gfx942.
DEVICE_NAME: Final = re.compile(r"(?:rtx|gtx|mi|gb|gh|sm|gfx|tpu|[abhkltpv])[ _-]?\d{1,4}[a-z]{0,2}", re.IGNORECASE)

# Keys, in lower case, whose values are a command line or an environment.
COMMAND_KEYS: Final = frozenset(
    {"command", "command_line", "commandline", "cmd", "cmdline", "argv", "sys.argv", "invocation", "entrypoint", "env",
     "environ", "environment", "env_vars", "environment_variables"}
)  # fmt: skip
# A launcher followed somewhere by an option or a script: the rest of the text is its command line.
COMMAND_LINE: Final = re.compile(
    r"(?<![^\s\"'=(:;])(?:[^\s\"']*/)?(?:python[\d.]*|ipython|torchrun|accelerate|deepspeed|colossalai|mpirun|mpiexec"
    r"|srun|sbatch|bash|sh|zsh|nsys|ncu|nohup|sudo|env|uv|conda|poetry|foretrace)(?:\.exe)?[ \t]+"
    r"(?=.*?(?:(?:^|\s)-|\.py\b|\.sh\b|=|-m )).+",
    re.DOTALL,
)
# Access tokens by their published prefixes: Hugging Face, GitHub, GitLab, OpenAI and Anthropic, AWS, Slack, Weights &
# Biases (api.wandb.ai keys are 40 hex digits behind their name).
CREDENTIAL: Final = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|sk-[\w-]{16,}"
    r"|AKIA[0-9A-Z]{12,}|xox[abprs]-[\w-]{10,})|(?<=WANDB_API_KEY=)\w+"
)

# Keys, in lower case, that hold a Python stack: torch/csrc/profiler/collection.cpp and kineto's output_json.cpp
# ("Call stack" of operators, "Python …" of frames), torch/_inductor's kernel events, memory records.
STACK_KEYS: Final = frozenset(
    {"call stack", "callstack", "stack", "stacks", "stack_trace", "stacktrace", "kernel_stacktrace", "python_stack",
     "python stack", "python_stacks", "traceback", "backtrace", "frames", "py_call_stack"}
)  # fmt: skip
# A frame inside a text: "model.py(12): forward", and Python's own 'File "model.py", line 12, in forward'.
FRAME: Final = re.compile(
    r"(?<![^\s;\"'])(?:[^\s;\"']+\.py|<[\w .-]*>(?:\.\d+)?)\(\d+\)(?:: [^\s;,]+)?"
    r"|File \"[^\"]*\", line \d+(?:, in [^\s;,]+)?(?:\n[ ]{4,}[^\n]*)?"
)

# --- the Hub ---------------------------------------------------------------------------------------------------------

# hub, utils/_hf_uris.py and hf_api.py (create_bucket): NAMESPACE/NAME; the characters are those of every repository.
BUCKET_NAME: Final = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}")
# Where a file of a bucket is fetched: the page's own link (hub, hf_api.py, get_bucket_file_metadata has the same
# route); it answers with a redirect to a signed address.
RESOLVE: Final = "{endpoint}/buckets/{bucket}/resolve/{path}"

# hub, hf_api.py: a batch is one call after its data is in the store; what fails in between is lost to the caller.
# Small batches lose little, and the Hub counts calls in windows of five minutes (huggingface.co/docs/hub/rate-limits).
BATCH_FILES: Final = 16
BATCH_BYTES: Final = 64_000_000

# hub gives its client no timeout at all (utils/_http.py, default_client_factory).
CONNECT_TIMEOUT_S: Final = 10.0
RESPONSE_TIMEOUT_S: Final = 60.0
# How long to wait where a 429 does not say, and in all: one window of the rate limits and some.
RATE_LIMIT_WAIT_S: Final = 10.0
RATE_LIMIT_PATIENCE_S: Final = 330.0
# draft-ietf-httpapi-ratelimit-headers, as hub reads it: "api";r=0;t=55.
RATE_LIMIT_RESET: Final = re.compile(r"r\s*=\s*0\s*;\s*t\s*=\s*(?P<seconds>\d+)")

# xet puts the status into the text of a ConnectionError or RuntimeError.
HTTP_STATUS: Final = re.compile(r"HTTP status (?:client|server) error \((?P<status>\d{3})\b")
# 402 payment required, 413 too large, 507 insufficient storage; the Hub itself answers 403 with "Private repository
# storage limit reached for NAME, please upgrade your plan".
QUOTA_STATUSES: Final = frozenset({402, 413, 507})
QUOTA_WORDS: Final = re.compile(r"storage limit|quota|upgrade your plan|insufficient storage|out of storage", re.I)
