"""Every operator's formula, or the reason why it has none: nothing is counted as zero by accident.

The conventions: a multiply-add is two operations. Any other arithmetic, comparison, rounding or elementary
function (exp, erf, tanh, …) is one for each element. An operator that stands for several steps counts as its
steps would: a softmax finds a maximum, subtracts, exponentiates, sums and divides, which makes 5. Normalisation by
the mean takes 7 with scale and shift, by the root of the mean square 4. What only moves or names data is 0.
"""

from __future__ import annotations

import math

from inferlab.model.flops import products
from inferlab.model.flops.products import Count, Formula, Operands, multiply_adds

MS = "com.microsoft"
ML = "ai.onnx.ml"
NCHWC = "com.microsoft.nchwc"
NHWC = "com.ms.internal.nhwc"
TRAINING = "ai.onnx.preview.training"


#: Operators that only move, select, name or make up data: a deliberate zero.
MOVEMENT = """
    BitCast Cast CastLike CenterCropPad Compress Concat ConcatFromSequence Constant ConstantOfShape DepthToSpace
    Dropout Expand EyeLike Flatten Gather GatherElements GatherND Identity If Loop MaxUnpool OneHot Optional
    OptionalGetElement OptionalHasElement Pad Reshape ReverseSequence Scan SequenceAt SequenceConstruct
    SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap Shape Size Slice SpaceToDepth Split
    SplitToSequence Squeeze TensorScatter Tile Transpose Trilu Unsqueeze
    ArrayFeatureExtractor CastMap FeatureVectorizer ZipMap
    ExpandDims QLinearConcat RemovePadding RestorePadding TorchEmbedding UnfoldTensor ReorderInput ReorderOutput
    BitmaskDropout RelativePositionBias Crop DynamicSlice GivenTensorFill MemcpyFromHost MemcpyToHost
    """

#: Operations for each element of the output.
EACH: dict[int, str] = {
    1: """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Clip
    Cos Cosh Div Equal Erf Exp Floor Greater GreaterOrEqual Hardmax IsInf IsNaN Less LessOrEqual Log Mod Mul
    Neg Not Or Pow Range Reciprocal Relu Round Sigmoid Sign Sin Sinh Sqrt Sub Tan Tanh ThresholdedRelu Where
    Xor CumSum CumProd Bernoulli RandomNormal RandomNormalLike RandomUniform RandomUniformLike
    Binarizer Imputer
    BiasAdd Scale MulInteger QLinearAdd QLinearMul QLinearSigmoid QLinearWhere BiasDropout BitmaskBiasDropout
    """,
    2: """
    BatchNormalization DequantizeLinear LeakyRelu PRelu QuantizeLinear Swish Shrink Scaler ScaledSiLU
    QLinearLeakyRelu GatherBlockQuantized DequantizeBFP QuantizeBFP DequantizeWithOrder QuantizeWithOrder
    BlackmanWindow HammingWindow HannWindow MelWeightMatrix GatedAdd Affine ImageScaler
    """,
    3: """
    Elu HardSigmoid LpNormalization Mish Normalizer QuickGelu Softplus Softsign SwiGLU ComplexMul
    ComplexMulConj ScaledTanh
    """,
    4: """
    Celu DynamicQuantizeLinear GemmaRotaryEmbedding HardSwish RMSNormalization Selu
    SimplifiedLayerNormalization ParametricSoftplus
    """,
    5: "LogSoftmax MeanVarianceNormalization QLinearSoftmax QOrderedGelu Softmax",
    6: "BiasGelu BiasSoftmax BiasSplitGelu GatedRMSNorm",
    7: "GroupNormalization InstanceNormalization GroupNorm QOrderedLayerNormalization",
    8: "SkipGroupNorm",
}

#: Operations for each element of the first input.
REDUCING: dict[int, str] = {
    1: """
    ArgMax ArgMin Col2Im GlobalAveragePool GlobalMaxPool MaxRoiPool Multinomial NonZero ReduceL1 ReduceMax
    ReduceMean ReduceMin ReduceProd ReduceSum ReduceLogSum QLinearReduceMean QLinearGlobalAveragePool
    ReduceSumInteger IsAllFinite
    """,
    2: "GlobalLpPool NegativeLogLikelihoodLoss ReduceL2 ReduceLogSumExp ReduceSumSquare",
    6: "SoftmaxCrossEntropyLoss",
}

NO_FORMULA = "inferlab has no formula for it"
_TEXT = "it works on text or on keys, which have no operations to count"
_DATA = "its work depends on the data"
_TRAINING = "it is an operator for training"
_COMPILED = "it is a model compiled for another device"

_WITHOUT: dict[tuple[str, str], str] = {
    ("", _TEXT): "RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer",
    ("", _DATA): "ImageDecoder NonMaxSuppression",
    (ML, _TEXT): "CategoryMapper DictVectorizer LabelEncoder OneHotEncoder",
    (MS, _TEXT): "Tokenizer MurmurHash3 NGramHashMapping VarlenNGramHashMapping WordConvEmbedding",
    (MS, _DATA): """
    BeamSearch BifurcationDetector DecoderAttention DynamicSparseAttention DynamicTimeWarping GreedySearch
    LongformerAttention NGramRepeatBlock PackedAttention PackedMultiHeadAttention PackedSparseAttentionIndexer
    PagedAttention QOrderedLongformerAttention SampleOp Sampling SparseAttention SparseAttentionIndexer
    SparsePagedAttention VarlenCausalConvWithState WhisperBeamSearch
    """,
    (MS, _COMPILED): "EPContext Snpe",
    (TRAINING, _TRAINING): "Adagrad Adam Gradient Momentum",
}

#: Why an operator has no count, by its domain and name.
UNCOUNTED: dict[tuple[str, str], str] = {
    (domain, name): reason for (domain, reason), names in _WITHOUT.items() for name in names.split()
}


def formula_for(domain: str, operator: str) -> Formula | None:
    """The formula of an operator, None where it has none."""
    domain = "" if domain == "ai.onnx" else domain
    if (domain, operator) in UNCOUNTED:
        return None
    own = _OWN.get((domain, operator))
    if own is None and domain in (MS, NCHWC, NHWC):
        own = _OWN.get(("", operator)) or _OWN.get((MS, operator))  # a variant in another layout
    if own is None and domain in ("", MS, ML, NCHWC, NHWC):
        own = _TABLE.get(operator)
    return own


def reason_for(domain: str, operator: str) -> str:
    """Why an operator has no formula."""
    if domain not in ("", "ai.onnx", MS, ML, NCHWC, NHWC, TRAINING):
        return f"it is an operator of '{domain}', which inferlab does not know"
    return UNCOUNTED.get(("" if domain == "ai.onnx" else domain, operator), NO_FORMULA)


def _each(count: int) -> Formula:
    return lambda op: Count(count * op.result_size())


def _reducing(count: int) -> Formula:
    return lambda op: Count(count * op.size())


def _among(op: Operands) -> Count:
    """Max, Min, Sum: one less than there are inputs, for each element."""
    return Count((len(op.inputs) - 1) * op.result_size())


def _mean(op: Operands) -> Count:
    return Count(len(op.inputs) * op.result_size())


def _pool(count: int = 1) -> Formula:
    """Pooling: each element of the window."""

    def formula(op: Operands) -> Count:
        kernel = op.attribute("kernel_shape") or [1]
        return Count(count * op.result_size() * math.prod(kernel))

    return formula


def _layer_norm(skip: bool = False, rms: bool = False) -> Formula:
    """By the mean 6 and the shift, by the root of the mean square 4; what is added before it adds 1 each."""

    def formula(op: Operands) -> Count:
        if rms:
            steps = 4 + skip + (skip and op.has(3))
        else:
            shift, bias = (3, 4) if skip else (2, products.NO_INPUT)
            steps = 6 + op.has(shift) + skip + op.has(bias)
        return Count(steps * op.result_size())

    return formula


def _embed_norm(op: Operands) -> Count:
    """Two or three embeddings are added, then normalised."""
    return Count((8 + op.has(4)) * op.result_size())


def _gelu(op: Operands) -> Count:
    """By erf 5 steps; by tanh 8; a bias is one more."""
    tanh = op.node.op_type == "FastGelu" or op.attribute("approximate", "none") == "tanh"
    return Count(((8 if tanh else 5) + op.has(1)) * op.result_size())


def _lrn(op: Operands) -> Count:
    """A square and a sum over `size` channels, then a scale, a shift, a power and a division."""
    return Count(op.result_size() * (op.attribute("size", 1) + 5))


def _resize(op: Operands) -> Count:
    """Nothing for the nearest; a multiply-add for each neighbour in each direction that changes otherwise."""
    mode = op.attribute("mode", "nearest")
    before, after = op.shape(0), op.result()
    changed = sum(old != new for old, new in zip(before, after, strict=True))
    if mode == "nearest" or not changed:
        return Count(0)
    return multiply_adds(math.prod(after) * (4 if mode == "cubic" else 2) ** changed)


def _grid_sample(op: Operands) -> Count:
    """A multiply-add for each neighbour; none for the nearest, four for bilinear, 16 for bicubic (in 2-D)."""
    mode, rank = op.attribute("mode", "linear"), len(op.shape(0)) - 2
    if mode == "nearest":
        return Count(0)
    return multiply_adds(op.result_size() * (4 if "cubic" in mode else 2) ** rank)


def _roi_align(op: Operands) -> Count:
    """Four multiply-adds for each sample, and one operation to gather it; one sample where the data decides."""
    samples = max(1, op.attribute("sampling_ratio", 0)) ** 2
    return multiply_adds(4 * samples * op.result_size(), samples * op.result_size())


def _scatter(index: int) -> Formula:
    """Nothing, or one operation for each update where they are added, multiplied or compared."""
    return lambda op: Count(op.size(index) if op.attribute("reduction", "none") != "none" else 0)


def _ordering(op: Operands) -> Count:
    """TopK: each element passes through a heap of k; Unique: a sort."""
    size = op.result()[op.attribute("axis", -1)] if op.node.op_type == "TopK" else op.size()
    return Count(op.size() * max(1, math.ceil(math.log2(max(2, size)))))


def _transform(op: Operands) -> Count:
    """Fourier transforms: 5 n log2 n for each, the customary count."""
    axis = -2 if op.node.op_type in ("DFT", "STFT") else -1
    if op.node.op_type == "DFT":
        axes = op.integers(2)
        axis = axes[0] if axes else op.attribute("axis", -2)
        length = max(op.shape(0)[axis], op.result()[axis])
    elif op.node.op_type == "STFT":
        window = op.shape(2) if op.has(2) else ()
        length = window[0] if window else (op.integers(3) or [2 * (op.result()[-2] - 1)])[0]
    else:
        length = max(op.shape(0)[axis], op.result()[axis])
    bins = op.result()[axis]
    transforms = op.result_size() // (2 * bins) if op.result()[-1] == 2 else op.result_size() // bins
    return Count(transforms * 5 * length * max(1, math.ceil(math.log2(max(2, length)))))


def _matrix_cubed(third: int) -> Formula:
    """Det and Inverse: so many thirds of n³ multiply-adds for each matrix."""

    def formula(op: Operands) -> Count:
        shape = op.shape(0)
        return multiply_adds(math.prod(shape[:-2]) * third * shape[-1] ** 3 // 3)

    return formula


def _affine_grid(op: Operands) -> Count:
    """Each coordinate is a row of theta by a point."""
    return multiply_adds(op.result_size() * op.shape(0)[-1])


def _trees(op: Operands) -> Count:
    """One comparison for each level of each tree (the mean depth of a balanced one), one sum for each tree."""
    roots = op.attribute("tree_roots") or sorted(set(op.attribute("nodes_treeids") or [0]))
    leaves = len(op.attribute("leaf_targetids") or ()) or (list(op.attribute("nodes_modes") or ()).count(b"LEAF"))
    depth = math.ceil(math.log2(max(2, leaves / max(1, len(roots)))))
    rows = op.size() // op.shape(0)[-1]
    return Count(rows * len(roots) * (depth + 1))


def _linear(op: Operands) -> Count:
    """Every coefficient is multiplied and added for each row, then the intercepts."""
    rows = op.size() // op.shape(0)[-1]
    weights = len(op.attribute("coefficients") or ())
    return multiply_adds(rows * weights, rows * len(op.attribute("intercepts") or ()))


def _support_vectors(op: Operands) -> Count:
    """A dot product with each support vector, and one multiply-add for its coefficients."""
    rows, width = op.size() // op.shape(0)[-1], op.shape(0)[-1]
    vectors = len(op.attribute("support_vectors") or ()) or width
    return multiply_adds(rows * (vectors + len(op.attribute("coefficients") or ())))


def _distances(op: Operands) -> Count:
    """CDist: a difference and a multiply-add for each pair and column."""
    pairs, width = op.result_size(), op.shape(0)[-1]
    return multiply_adds(pairs * width, pairs * width)


_TABLE: dict[str, Formula] = {
    **{name: (lambda op: Count(0)) for name in MOVEMENT.split()},
    **{name: _each(count) for count, names in EACH.items() for name in names.split()},
    **{name: _reducing(count) for count, names in REDUCING.items() for name in names.split()},
}

_OWN: dict[tuple[str, str], Formula] = {
    (domain, name): formula
    for domain, names, formula in (
        ("", "Max Min Sum", _among),
        ("", "Mean", _mean),
        ("", "MaxPool AveragePool", _pool()),
        ("", "LpPool", _pool(count=2)),
        ("", "LRN", _lrn),
        ("", "Gelu", _gelu),
        ("", "LayerNormalization", _layer_norm()),
        (MS, "FastGelu", _gelu),
        (MS, "SkipLayerNormalization", _layer_norm(skip=True)),
        (MS, "SkipSimplifiedLayerNormalization", _layer_norm(skip=True, rms=True)),
        (MS, "EmbedLayerNormalization QEmbedLayerNormalization", _embed_norm),
        ("", "Resize Upsample", _resize),
        ("", "GridSample", _grid_sample),
        ("", "AffineGrid", _affine_grid),
        ("", "RoiAlign", _roi_align),
        ("", "Scatter ScatterElements ScatterND", _scatter(2)),
        ("", "TopK Unique", _ordering),
        ("", "DFT STFT", _transform),
        ("", "Det", _matrix_cubed(1)),
        ("", "Conv", products.conv()),
        ("", "ConvInteger", products.conv(bias=products.NO_INPUT)),
        ("", "QLinearConv", products.conv(3, 8)),
        ("", "ConvTranspose", products.conv_transpose()),
        ("", "DeformConv", products.deform_conv),
        ("", "CausalConvWithState", products.causal_conv),
        ("", "Gemm", products.gemm()),
        ("", "MatMul MatMulInteger QLinearMatMul", products.matmul()),
        ("", "Einsum", products.einsum),
        ("", "LSTM", products.recurrent(4, 9)),
        ("", "GRU", products.recurrent(3, 8)),
        ("", "RNN", products.recurrent(1, 1)),
        ("", "Attention", products.onnx_attention),
        ("", "LinearAttention", products.linear_attention),
        ("", "RotaryEmbedding", products.rotary),
        ("ai.onnx.preview", "FlexAttention", products.onnx_attention),
        (ML, "LinearClassifier LinearRegressor", _linear),
        (ML, "SVMClassifier SVMRegressor", _support_vectors),
        (ML, "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor", _trees),
        (MS, "Attention DecoderMaskedSelfAttention", products.projected(past=4, mask=3)),
        (MS, "QAttention", products.projected(past=8, mask=5)),
        (MS, "MultiHeadAttention", products.multi_head(bias=3, masks=(4, 5), past=6)),
        (MS, "DecoderMaskedMultiHeadAttention", products.multi_head(bias=10, masks=(3, 4), past=5)),
        (MS, "GroupQueryAttention", products.group_query),
        (MS, "MRotaryEmbedding", products.rotary),
        (MS, "FusedConv NhwcConv NhwcFusedConv", products.conv()),
        (MS, "ConvTransposeWithDynamicPads", products.conv_transpose(bias=3)),
        (NHWC, "QLinearConvTranspose", products.conv_transpose(3, 8)),
        (
            MS,
            "FusedMatMul FusedMatMulActivation TransposeMatMul SparseToDenseMatMul MatMulInteger16 MatMulFpQ4",
            products.matmul(),
        ),
        (MS, "MatMulIntegerToFloat", products.matmul(each=1, bias=6)),
        (MS, "DynamicQuantizeMatMul", products.quantizing_matmul),
        (MS, "QOrderedMatMul", products.matmul(bias=5)),
        (MS, "MatMulNBits MatMulBnb4", products.packed_matmul),
        (MS, "FusedGemm GemmFloat8", products.gemm()),
        (MS, "GemmFastGelu", products.matmul(each=7, bias=2)),
        (MS, "QGemm", products.gemm(bias=6)),
        (MS, "DynamicQuantizeLSTM", products.recurrent(4, 9, transposed=True)),
        (MS, "MoE", products.expert_mixture((2, 4, 6))),
        (MS, "QMoE", products.expert_mixture((2, 5, 8), bits="expert_weight_bits")),
        (MS, "QLinearAveragePool NhwcMaxPool MaxpoolWithMask", _pool()),
        (MS, "CropAndResize", lambda op: multiply_adds(4 * op.result_size())),
        (MS, "Rfft Irfft", _transform),
        (MS, "Inverse", _matrix_cubed(3)),
        (MS, "CDist", _distances),
    )
    for name in names.split()
}
