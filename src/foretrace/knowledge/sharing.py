"""What of a folder is worth sharing, what in it tells of a person or a machine, and how the Hub's buckets answer.

Sources are beside the constants. "hub" stands for huggingface_hub 2.4.0 (src/huggingface_hub in its repository), "xet"
for hf_xet 1.8.0, both read and tried against a local server.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

__all__ = [
    "ACCOUNTS",
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
    "GRAMMARS",
    "HOST_KEYS",
    "HTTP_STATUS",
    "KEPT_VALUES",
    "KINETO_KEYS",
    "LOGIN",
    "MAIL",
    "NETWORK_ADDRESS",
    "OPERATOR_NAME",
    "OWNER_IN_PATH",
    "PATH",
    "PLACEHOLDERS",
    "QUOTA_STATUSES",
    "QUOTA_WORDS",
    "RATE_LIMIT_PATIENCE_S",
    "RATE_LIMIT_RESET",
    "RATE_LIMIT_WAIT_S",
    "REPOSITORY",
    "RESOLVE",
    "RESPONSE_TIMEOUT_S",
    "STACK_KEYS",
    "TENSORBOARD_FILE",
    "URL_LOGIN",
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
    "repository": "repository",
}

# A path inside a text: a slash that no word is before, and at least two parts; its last part is kept. The name of a
# folder may hold spaces, tabs, line ends and bars, since a slash follows that says where it ends, and an apostrophe
# between letters (o'neill). `..` and `~` at its beginning, a scheme (file://, s3://) and slashes written as %2F, or
# as %252F where an address stands in an address, belong to it.
_LETTER: Final = r"(?:[^\s/\\\"'<>|;*]|(?<=\w)'(?=\w))"
_PART: Final = rf"{_LETTER}+(?:[\s|]+{_LETTER}+)*"
# The same where the text was written into a string, which spells tabs and line ends out, or for a shell.
_PART_OR_ESCAPE: Final = rf"{_LETTER}+(?:(?:[\s|]|\\+[nrt ()&'])+{_LETTER}+)*"
_LAST: Final = r"(?:[^\s/\\\"'<>|;]|(?<=\w)'(?=\w))*"
_SLASH_IN_URL: Final = r"%(?:25)*(?:2[Ff]|5[Cc])"
# Folders that systems and clusters have at their root: home folders, and those that are shared, with a folder for each
# user or project below.
_SHARED_ROOTS: Final = "scratch|data|work|mnt|nfs|fsx|lustre|gpfs"
_ROOTS: Final = f"home|[Uu]sers|root|opt|usr|var|tmp|etc|srv|workspace|Volumes|export|{_SHARED_ROOTS}"
PATH: Final = re.compile(
    r"(?:(?<![\w.~/\\-])(?:[A-Za-z][A-Za-z0-9+.-]*:)?/{1,3}|(?<![\w.~/\\-])(?:\.\./)+|(?<![\w/\\])(?:~[\w.-]*|\$\w+|\$\{\w+\})/"
    # Stuck to a word (-I/usr/include, x=1/home/me) only where its first part is a folder that systems have.
    rf"|(?<=\w)/(?=(?:{_ROOTS})/))"
    rf"(?P<folders>(?:{_PART_OR_ESCAPE}/+)*)(?P<last>{_LAST})"
)
# C:\Users\me\x.py, C:/Users/me/x.py, %APPDATA%\x.py, \\server\share\x.py, \\wsl$\Ubuntu\home\me\x.py and
# \\?\C:\Users\me\x.py.
WINDOWS_PATH: Final = re.compile(
    rf"(?:(?<!\w)[A-Za-z]:[\\/]+|%\w+%[\\/]+|(?<![\w\\])\\{{2,8}}(?=[\w.$?-]+\\))"
    rf"(?P<folders>(?:{_PART}[\\/]+)*)(?P<last>{_LAST})"
)
_LETTER_IN_URL: Final = rf"(?!{_SLASH_IN_URL})[^\s/\\\"'<>|;]"
FOREIGN_PATH: Final = re.compile(
    rf"(?:\b[A-Za-z][A-Za-z0-9+.-]*%(?:25)*3[Aa])?(?P<folders>(?:(?:{_SLASH_IN_URL}){{1,4}}(?:{_LETTER_IN_URL})+)+)"
    rf"(?:{_SLASH_IN_URL}){{1,4}}(?P<last>(?:{_LETTER_IN_URL})*)"
)
# A repository's address says whose it is, and its last part is the project's name: git@HOST:OWNER/NAME.git,
# https://HOST/OWNER/NAME.git, and the pages of the forges that most use (git-scm.com/docs/git-clone, "GIT URLS").
REPOSITORY: Final = re.compile(
    r"(?:(?<![\w.+-])[\w.+-]+@[\w.-]+:(?!//)(?:[^\s\"'<>|;:/]+/+)+[^\s\"'<>|;,:/]+"
    r"|\b(?:https?|ssh|git)(?:\+\w+)?://[^\s\"'<>|;]{1,200}?\.git\b"
    r"|\b(?:https?|ssh|git)(?:\+\w+)?://(?:[^\s/@]+@)?(?:www\.)?(?:github\.com|gitlab\.com|bitbucket\.org|huggingface\.co)"
    r"/[^\s\"'<>|;,]+)"
)

# Where a path says whose it is: home folders, and the caches that are named after a user
# (torch/_inductor/runtime/cache_dir_utils.py: $TMPDIR/torchinductor_USER; slurm and systemd: /run/user/ID).
_SLASH: Final = rf"(?:/+|\\+|{_SLASH_IN_URL})"
_NAME_LETTER: Final = (
    r"(?:[^\s/\\%\"':;,<>|]|(?<=\w)'(?=\w)|%(?!(?:25)*(?:2[0-9A-Fa-f]|3[A-Fa-f]|5[Cc]))(?:25)*[0-9A-Fa-f]{2})"
)
USER_IN_PATH: Final = re.compile(
    rf"(?:{_SLASH}(?:homes?\d*|[Uu]sers){_SLASH}|torchinductor_|\btorch_extensions_"
    r"|(?<![\w/])~(?=[A-Za-z][\w.-]*/))"
    rf"(?P<user>{_NAME_LETTER}+(?:(?:[^\S\r\n]|\||\\+ )+{_NAME_LETTER}+)*(?={_SLASH})|{_NAME_LETTER}+)"
)
# The folder below a root that is shared: it is a user's or a project's.
OWNER_IN_PATH: Final = re.compile(
    rf"(?:(?<![\w.~\-/\\%])/+|(?<=:)/+|(?<=-[A-Z])/+|{_SLASH_IN_URL})(?:{_SHARED_ROOTS})\d*{_SLASH}"
    rf"(?:(?:users|people|homes?|shared|projects?|{_SHARED_ROOTS})\d*{_SLASH})*"
    rf"(?P<user>{_NAME_LETTER}+(?={_SLASH})|(?:(?!\.){_NAME_LETTER})++(?!\.))"
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
# How accounts are called (useradd(8)): what stands before an @ and is no such name is no user's.
LOGIN: Final = re.compile(r"[a-z_][a-z0-9_.+-]*")
# A login inside an address: https://NAME:PASSWORD@HOST.
URL_LOGIN: Final = re.compile(r"(?<=://)[^\s/]{1,256}@")
# An address with a scheme or a port; four numbers alone may as well be a version (cuBLAS 12.8.4.1).
NETWORK_ADDRESS: Final = re.compile(
    r"(?<=://)(?:(?:\d{1,3}\.){3}\d{1,3}|[A-Za-z][\w-]*(?:\.[\w-]+)*)(?=[:/]|$)|(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?=:\d)"
)

# Names that are taken out only where they are known to be names (home folders, keys such as "username"), for as words
# they also stand in the names of kernels, operators and devices: accounts that everybody has, and what work is called.
# Beside these, every word of the grammars of kernels and operators (GRAMMARS) and every known key counts as one.
ACCOUNTS: Final = frozenset(
    {"root", "user", "users", "host", "localhost", "admin", "ubuntu", "debian", "centos", "ec2-user", "runner",
     "docker", "jovyan", "vscode", "app", "worker", "node", "home", "shared", "public", "default", "nobody",
     "git", "hg", "svn", "ssh", "ftp", "www", "noreply", "no-reply", "oauth2", "postgres", "slurm", "azureuser"}
)  # fmt: skip
COMMON_NAMES: Final = ACCOUNTS | frozenset(
    {"python", "torch", "pytorch", "triton", "cuda", "nvidia", "amd", "rocm", "aten", "void", "kernel", "conda",
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

# Rooms of the knowledge base whose words are those of kernels, operators, types and the profiler's own rows.
GRAMMARS: Final = ("kernels", "lowering", "costs", "kineto", "dtypes", "compiled", "copying", "tables", "timeline",
                   "dispatching", "launching")  # fmt: skip
# A dispatcher's operator, or a function that Inductor generated: no user is named in it.
OPERATOR_NAME: Final = re.compile(r"(?:[A-Za-z_]\w*::)+~?\w+(?:\.\w+)*|triton_\w+")

# The keys that profilers write and readers go by: kineto's output_json.cpp, torch's collection.cpp,
# execution_trace_observer.cpp and profiler_kineto.cpp (torch 1.8 to 2.13), Chrome's trace event format.
KINETO_KEYS: Final = frozenset(
    {"name", "pid", "tid", "ph", "ts", "cat", "args", "dur", "id", "id2", "bp", "s", "tts", "tdur", "cname", "sf",
     "External id", "external id", "External ID", "Ev Idx", "Record function id", "Input type", "Input Dims",
     "Input dims", "Input Strides", "Input Types", "Concrete Inputs", "Kwinputs", "Call stack", "Call Stack",
     "Sequence number", "Fwd thread id", "Trace name", "Trace iteration", "Module Hierarchy", "correlation", "cbid",
     "stream", "device", "context", "grid", "block", "shared memory", "queued", "registers per thread",
     "blocks per SM", "warps per SM", "est. achieved occupancy %", "Python parent id", "Python id",
     "Python module id", "Python thread", "Total Reserved", "Total Allocated", "Bytes", "Device Id", "Device Type",
     "Addr", "finished", "bytes", "memory bandwidth (GB/s)", "kind", "cid", "sort_index", "kernel", "labels",
     "Collective name", "Process Group Name", "Process Group Description", "Process Group Ranks", "dtype",
     "In msg nelems", "Out msg nelems", "In split size", "Out split size", "Group size", "Rank", "Src Rank",
     "Dst Rank", "Seq", "Is asynchronized op", "Global rank start", "Global rank stride", "traceEvents",
     "schemaVersion", "deviceProperties", "traceName", "record_shapes", "profile_memory", "with_stack", "with_flops",
     "with_modules", "displayTimeUnit", "baseTimeNanoseconds", "trace_id", "cuda_runtime_version",
     "cuda_driver_version", "cupti_version", "hip_runtime_version", "hip_driver_version", "roctracer_version",
     "nccl_version", "totalGlobalMem", "computeMajor", "computeMinor", "maxThreadsPerBlock",
     "maxThreadsPerMultiprocessor", "regsPerBlock", "warpSize", "sharedMemPerBlock", "numSms",
     "regsPerMultiprocessor", "sharedMemPerBlockOptin", "sharedMemPerMultiprocessor",
     "maxSharedMemoryPerMultiProcessor", "Op count", "cuda_sync_kind", "wait_on_stream",
     "wait_on_cuda_event_record_corr_id", "wait_on_cuda_event_id", "distributedInfo", "backend", "backend_config",
     "rank", "world_size", "pg_name", "pg_desc", "pg_size", "pg_count", "pg_config", "ranks", "scope",
     "kernel_backend", "kernel_file", "kernel_hash", "kernel_name", "kernel_kwargs", "num_warps", "num_stages",
     "src", "dst", "size", "graph id", "graph node id", "host_name", "hostname", "username", "user", "command", "env",
     "INFO", "WARNING", "ERROR"}
)  # fmt: skip
# Keys, in lower case, whose values only a path is taken out of: the profiler's own words stand there.
KEPT_VALUES: Final = frozenset(
    {"ph", "cat", "bp", "s", "input type", "input types", "dtype", "collective name", "kernel_backend",
     "cuda_sync_kind", "displaytimeunit", "device type", "kind"}
)  # fmt: skip

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
