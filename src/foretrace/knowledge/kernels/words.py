"""The vocabulary of kernel authors: what a kernel does, told from the words of its identifier.

Used where a library's names follow no grammar of their own. The rules are tried in order, because a kernel is what its
dominant operator is: an attention kernel that also reduces is attention, a normalization that also quantizes is a
normalization. A rule holds *stems*, looked for anywhere in the identifier with case and underscores taken out, and
*words*, which must stand alone. The vocabulary is general knowledge of the CUDA, ROCm and Triton libraries named in
``libraries.py``; no rule was made for one kernel.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

__all__ = ["activation_words", "kind_by_words", "words_of"]


class _Rule(NamedTuple):
    kind: str
    stems: tuple[str, ...]
    words: frozenset[str] = frozenset()
    unless: tuple[str, ...] = ()


def _rule(kind: str, stems: str, words: str = "", unless: str = "") -> _Rule:
    return _Rule(kind, tuple(stems.split()), frozenset(words.split()), tuple(unless.split()))


_RULES = (
    _rule(
        "communication",
        "allreduce allgather reducescatter alltoall a2a multimem nvshmem sendrecv crossdevicereduce symmmem"
        " lamportbarrier multigpubarrier deepep",
        "barrierall",
    ),
    _rule(
        "optimizer",
        "optimizer multitensoradam fusedadam",
        "adam adamw sgd lamb lion adagrad rmsprop muon adafactor",
        "embedding",
    ),
    _rule(
        "embedding",
        "embedding embeddingbag boundscheckindices splitembedding lookuptable linearizeindex linearizecache lxucache",
        "embed emb tbe",
        "rotary rope position",
    ),
    _rule(
        "attention",
        "attention flashattn flashfwd flashbwd fmha pagedattn sdpa splitkvreduce mergeattnstates mergestates flashmla "
        "mladecode deltarule linearattn lightningattn retention chunkgla fusedrecurrent batchdecode batchprefill "
        "singledecode singleprefill decodestage xqa flashinferbatch "
        "persistentvariablelengthmerge prefillwith decodewith gateddelta chunkfwdkernel "
        "chunkbwdkernel chunkfwdo chunkbwd "
        "chunkgateddelta chunkkda wyfast recomputewu nsacompression gqadecode",
        "attn mha mla gqa mqa sage fa2 fa3 flash nsa gla",
        "metadata kvindices kvsplits reshapeandcache concatandcache storekv copykv writekv setkv kvcache",
    ),
    _rule(
        "gemm",
        "gemm gemv matmul marlin exllama hqq machete splitkreduce fusedmoekernel groupedmm batchedmm scaledmm "
        "w4a16 w8a8 w8a16 w4a8 fp8mm nvfp4mm moemm dualmm qmatvec mulmatvec mulmatq mmvq wmma persistentmm"
        " bmmchunk quantmatmul wvsplitk blockscaledmm gatedmlp fusedmlp",
        "mm bmm addmm mmq mmv ggemm gmm awq gptq gemmk1 trsm trmm trsv trmv syrk herk",
        "gemmmetadata filltensormaps implicitgemm igemmfwd igemmbwd igemmwrw",
    ),
    _rule(
        "convolution",
        "convolution convolve conv1d conv2d conv3d winograd fprop dgrad wgrad im2col col2im implicitgemm depthwise "
        "convdepth igemm deconv causalconv computeoffsets",
        "conv im2d2col col2im2d naiveconv",
        "convert",
    ),
    _rule(
        "sort",
        "topk radixsort bitonic sortkernel sortkey sortpairs argsort mergesort moealign alignblocksize "
        "uniquebykey expertrouting routingindices combinedrouting countandsort moesort sortbyexpert sortingscatter "
        "grouptopk groupedtopk toppsampling samplingfromprob gatingsoftmax fusedgate deviceselect partition "
        "histogram bucketize compact nonzero unique searchsorted kthvalue uniform2sort blockedsort radixselect "
        "findlongsegments",
        "sort sorted routing rank mode median select nms",
    ),
    _rule("softmax", "softmax crossentropy logsumexp", "xent"),
    _rule(
        "normalization",
        "layernorm rmsnorm batchnorm groupnorm instancenorm normfwd normbwd addnorm qknorm l2norm normalize lnfwd "
        "lnbwd bnfw bnbw welford addrms rmslayer cuwelford cucompute computefusedparams computeinternalgradients "
        "gammabeta cucomputegrad gnnhwc normquant spatialbn weightnorm renorm",
        "norm rms ln bn gn lnorm",
        "multitensorl2norm vectornorm gradnorm clipnorm normonly foreachnorm renormalize",
    ),
    _rule(
        "fused",
        "rotary swiglu geglu reglu siluandmul geluandmul actandmul silumul gelumul siluglu biasgelu biasgelu biasact "
        "biasswiglu biasdropout dropoutadd biasadd scaledmaskedadd fusedbias biassilu fusedaddmul addbias actmul "
        "actandmulquant ropequant qkvrope fusedqkrope mrope gatedact activationgated doactivation fatrelumul "
        "softcapmul siluandmulquant adaln modulate",
        "rope glu",
    ),
    _rule(
        "reduction",
        "reduce reduction argmax argmin cumsum cumprod scan l2norm multitensorl2norm maxabs amax absmax nllloss "
        "avgpool maxpool pooling adaptivepool segmentreduce segmentsum rowsum colsum moesum sumkernel meankernel "
        "logcumsum kldiv ctcloss lossfwd lossforward lossbwd lossbackward lossgrad sumreduce prefixsum statepassing "
        "selectivestate rowreduce dotproduct normonly normtwo vectornorm gradnorm trace checkfinite aggregate "
        "multimargin histc bincount chunkstate segment cdist pdist countnonzero sumof",
        "sum mean max min dot nrm2 asum norm var std all any prod pool loss entropy count",
    ),
    _rule(
        "copy",
        "copy transpose permute concat cat2 reshapeandcache storekv storecache kvcache writekv setkv setmla catarray "
        "gather scatter nchwtonhwc nhwctonchw nchw2nhwc nhwc2nchw layouttransform repack shuffle reorder rearrange "
        "pad2d reflectionpad replicationpad constantpad memcpy convertdtype todense jaggedto densetojagged "
        "expandjagged repeatinterleave createflashinferkvindices kvindices unpack packbits tensorslice index "
        "flip stack splitcopy unpermute upsamplenearest moveslice assignreq reqto gathertokens converttype "
        "todtype padding fp32tobf16 bf16tofp32 expandinto repeat swapblocks swap unfold",
        "cast roll cat copy pad pack convert transpose permute "
        "gather scatter index expand slice store load cache flip roll "
        "interleave take put",
        "transposeconv casttofp8 castback casttofp4",
    ),
    _rule(
        "elementwise",
        "elementwise pointwise quantize quant dequant fill memset zeros zero gelu silu relu sigmoid tanh dropout "
        "clamp where add mul sub div exp log pow sqrt abs neg activation mask scale random uniform normal bernoulli "
        "casttofp8 castback casttofp4 rowwisetofloat tofloat philox "
        "multitensorapply unscale upsample interpolate gridsample gridsampler "
        "affinegrid loss arange linspace "
        "triu tril axpy axpby scal binary unary compare eq lerp nanto floor ceil round sin cos erf lgamma setvalue "
        "init update increment clear position polynomial bessel",
        "inc dec set add",
    ),
)

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_WORD = re.compile(r"[^a-z0-9]+")
_ACTIVATIONS = ("gelu", "silu", "relu", "sigmoid", "tanh", "swish", "mish", "elu", "softplus", "hardswish")


def words_of(identifier: str) -> list[str]:
    """The words of an identifier in snake or camel case, in lower case: ``cunn_SoftMaxForward`` is four words."""
    snake = _CAMEL.sub("_", identifier).lower()
    return [word for word in _NOT_WORD.split(snake) if word]


@lru_cache(maxsize=4096)
def kind_by_words(identifier: str) -> str | None:
    """The kind that the words of ``identifier`` name, or ``None`` when they name none."""
    words = words_of(identifier[:400])
    squeezed = "".join(words)
    unique = set(words)
    for rule in _RULES:
        if (not unique.isdisjoint(rule.words) or any(stem in squeezed for stem in rule.stems)) and not any(
            stem in squeezed for stem in rule.unless
        ):
            return rule.kind
    return None


def activation_words(identifier: str) -> list[str]:
    """The activations an identifier names, in the order of the name."""
    words = words_of(identifier[:400])
    return [word for word in words if word in _ACTIVATIONS]
