"""The operators by what they cost: those that only move data, those with a count for each element, those without.

The conventions: a multiply-add is two operations. Any other arithmetic, comparison, rounding or elementary
function (exp, erf, tanh, …) is one for each element. An operator that stands for several steps counts as its
steps would: a softmax finds a maximum, subtracts, exponentiates, sums and divides, which makes 5. Normalisation by
the mean takes 7 with scale and shift, by the root of the mean square 4. What only moves or names data is 0.
"""

from __future__ import annotations

MS = "com.microsoft"
ML = "ai.onnx.ml"
NCHWC = "com.microsoft.nchwc"
NHWC = "com.ms.internal.nhwc"
TRAINING = "ai.onnx.preview.training"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Operators that only move, select, name or make up data: a deliberate zero.
MOVEMENT = _words(
    """
    BitCast Cast CastLike CenterCropPad Compress Concat ConcatFromSequence Constant ConstantOfShape DepthToSpace
    Dropout Expand EyeLike Flatten Gather GatherElements GatherND Identity If Loop MaxUnpool OneHot Optional
    OptionalGetElement OptionalHasElement Pad Reshape ReverseSequence Scan SequenceAt SequenceConstruct
    SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap Shape Size Slice SpaceToDepth Split
    SplitToSequence Squeeze TensorScatter Tile Transpose Trilu Unsqueeze
    ArrayFeatureExtractor CastMap FeatureVectorizer ZipMap
    ExpandDims QLinearConcat RemovePadding RestorePadding TorchEmbedding UnfoldTensor ReorderInput ReorderOutput
    BitmaskDropout RelativePositionBias Crop DynamicSlice GivenTensorFill MemcpyFromHost MemcpyToHost
    """
)

#: Operators that do no work at all where they stand: an engine hands the same memory on.
VIEWS = _words(
    "Constant Dropout Flatten Identity If Loop Optional OptionalGetElement Reshape Scan SequenceMap Shape Size "
    "Squeeze Unsqueeze"
)

#: Operators that read only what they give of their first input.
PARTIAL = _words("Compress Gather GatherElements GatherND GatherBlockQuantized Slice TorchEmbedding")

#: Operators that draw numbers: what they give is not constant, even where all that they read is.
RANDOM = _words("Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike")

#: Operations for each element of the output.
EACH: dict[int, frozenset[str]] = {
    1: _words(
        """
        Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Clip
        Cos Cosh Div Equal Erf Exp Floor Greater GreaterOrEqual Hardmax IsInf IsNaN Less LessOrEqual Log Mod Mul
        Neg Not Or Pow Range Reciprocal Relu Round Sigmoid Sign Sin Sinh Sqrt Sub Tan Tanh ThresholdedRelu Where
        Xor CumSum CumProd Bernoulli RandomNormal RandomNormalLike RandomUniform RandomUniformLike
        Binarizer Imputer
        BiasAdd Scale MulInteger QLinearAdd QLinearMul QLinearSigmoid QLinearWhere BiasDropout BitmaskBiasDropout
        """
    ),
    2: _words(
        """
        BatchNormalization DequantizeLinear LeakyRelu PRelu QuantizeLinear Swish Shrink Scaler ScaledSiLU
        QLinearLeakyRelu GatherBlockQuantized DequantizeBFP QuantizeBFP DequantizeWithOrder QuantizeWithOrder
        BlackmanWindow HammingWindow HannWindow MelWeightMatrix GatedAdd Affine ImageScaler
        """
    ),
    3: _words(
        """
        Elu HardSigmoid LpNormalization Mish Normalizer QuickGelu Softplus Softsign SwiGLU ComplexMul
        ComplexMulConj ScaledTanh
        """
    ),
    4: _words(
        """
        Celu DynamicQuantizeLinear GemmaRotaryEmbedding HardSwish RMSNormalization Selu
        SimplifiedLayerNormalization ParametricSoftplus
        """
    ),
    5: _words("LogSoftmax MeanVarianceNormalization QLinearSoftmax QOrderedGelu Softmax"),
    6: _words("BiasGelu BiasSoftmax BiasSplitGelu GatedRMSNorm"),
    7: _words("GroupNormalization InstanceNormalization GroupNorm QOrderedLayerNormalization"),
    8: _words("SkipGroupNorm"),
}

#: Operations for each element of the first input.
REDUCING: dict[int, frozenset[str]] = {
    1: _words(
        """
        ArgMax ArgMin Col2Im GlobalAveragePool GlobalMaxPool MaxRoiPool Multinomial NonZero ReduceL1 ReduceMax
        ReduceMean ReduceMin ReduceProd ReduceSum ReduceLogSum QLinearReduceMean QLinearGlobalAveragePool
        ReduceSumInteger IsAllFinite
        """
    ),
    2: _words("GlobalLpPool NegativeLogLikelihoodLoss ReduceL2 ReduceLogSumExp ReduceSumSquare"),
    6: _words("SoftmaxCrossEntropyLoss"),
}

NO_FORMULA = "inferlab has no formula for it"
_TEXT = "it works on text or on keys, which have no operations to count"
_DATA = "its work depends on the data"
_TRAINING = "it is an operator for training"
_COMPILED = "it is a model compiled for another device"

_WITHOUT: dict[tuple[str, str], frozenset[str]] = {
    ("", _TEXT): _words("RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer"),
    ("", _DATA): _words("ImageDecoder NonMaxSuppression"),
    (ML, _TEXT): _words("CategoryMapper DictVectorizer LabelEncoder OneHotEncoder"),
    (MS, _TEXT): _words("Tokenizer MurmurHash3 NGramHashMapping VarlenNGramHashMapping WordConvEmbedding"),
    (MS, _DATA): _words(
        """
        BeamSearch BifurcationDetector DecoderAttention DynamicSparseAttention DynamicTimeWarping GreedySearch
        LongformerAttention NGramRepeatBlock PackedAttention PackedMultiHeadAttention PackedSparseAttentionIndexer
        PagedAttention QOrderedLongformerAttention SampleOp Sampling SparseAttention SparseAttentionIndexer
        SparsePagedAttention VarlenCausalConvWithState WhisperBeamSearch
        """
    ),
    (MS, _COMPILED): _words("EPContext Snpe"),
    (TRAINING, _TRAINING): _words("Adagrad Adam Gradient Momentum"),
}

#: Why an operator has no count, by its domain and name.
UNCOUNTED: dict[tuple[str, str], str] = {
    (domain, name): reason for (domain, reason), names in _WITHOUT.items() for name in names
}
