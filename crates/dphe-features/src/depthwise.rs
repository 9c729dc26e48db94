//! One small filter for each channel, channels last: mobile networks spend much of their time there, and tract has no
//! vector code for it on x86. Products are added in the same order everywhere, so features do not depend on the CPU.

use std::sync::Arc;

use pulp::{Arch, NullaryFnOnce};
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::model::Rewriter;
use tract_onnx::tract_core::ops::cnn::conv::{Conv, KernelFormat};
use tract_onnx::tract_core::ops::nn::DataFormat;

/// Puts our filter in the place of every convolution that it can do.
pub(crate) fn use_ours(mut model: TypedModel) -> TractResult<TypedModel> {
    Rewriter::<()>::default().with_rule_for("depthwise", replace).rewrite(&(), &mut model)?;
    Ok(model)
}

fn replace(
    _: &(),
    model: &TypedModel,
    node: &TypedNode,
    name: &str,
    conv: &Conv,
) -> TractResult<Option<TypedModelPatch>> {
    let Some(filter) = DepthWise::of(model, node, conv)? else { return Ok(None) };
    let mut patch = TypedModelPatch::default();
    let input = patch.tap_model(model, node.inputs[0])?;
    let input = patch.wire_node(format!("{name}.last"), AxisOp::Move(1, 3), &[input])?;
    let output = patch.wire_node(name, filter, &input)?;
    let output = patch.wire_node(format!("{name}.first"), AxisOp::Move(3, 1), &output)?;
    patch.shunt_outside(model, node.id.into(), output[0])?;
    Ok(Some(patch))
}

/// Height and width.
type Size = [usize; 2];

#[derive(Clone, Debug, Hash, PartialEq, Eq)]
struct DepthWise {
    channels: usize,
    input: Size,
    output: Size,
    kernel: Size,
    stride: Size,
    /// Rows and columns of zeros before the picture.
    before: Size,
    /// Place by place, all channels of each.
    taps: Arc<Tensor>,
    bias: Arc<Tensor>,
}

impl DepthWise {
    /// The same as this convolution, if it is one that we do.
    fn of(model: &TypedModel, node: &TypedNode, conv: &Conv) -> TractResult<Option<Self>> {
        let (spec, channels) = (&conv.pool_spec, conv.group);
        let fits = conv.q_params.is_none()
            && channels > 1
            && channels == spec.input_channels
            && channels == spec.output_channels
            && spec.data_format == DataFormat::NCHW
            && conv.kernel_fmt == KernelFormat::OIHW
            && spec.dilations().iter().all(|&dilation| dilation == 1)
            && node.inputs.len() == 3;
        let fact = model.outlet_fact(node.inputs[0])?;
        let (Some(&[1, _, height, width]), true) = (fact.shape.as_concrete(), fits) else { return Ok(None) };
        let [Some(taps), Some(bias)] = [1, 2].map(|i| model.outlet_fact(node.inputs[i]).ok()?.konst.clone())
        else {
            return Ok(None);
        };
        let &[rows, columns] = &spec.kernel_shape[..] else { return Ok(None) };
        let places = rows * columns;
        if fact.datum_type != f32::datum_type()
            || taps.datum_type() != f32::datum_type()
            || bias.datum_type() != f32::datum_type()
            || taps.len() != channels * places
            || ![1, channels].contains(&bias.len())
            || places > MOST_PLACES
        {
            return Ok(None);
        }
        let padding = spec.computed_padding(&[height, width]);
        let by_channel = taps.to_plain_array_view::<f32>()?;
        let by_channel: Vec<f32> = by_channel.iter().copied().collect();
        let by_place: Vec<f32> =
            (0..places * channels).map(|i| by_channel[(i % channels) * places + i / channels]).collect();
        let bias: Vec<f32> = bias.to_plain_array_view::<f32>()?.iter().copied().collect();
        let bias: Vec<f32> = (0..channels).map(|channel| bias[channel % bias.len()]).collect();
        Ok(Some(Self {
            channels,
            input: [height, width],
            output: [padding[0].convoluted, padding[1].convoluted],
            kernel: [rows, columns],
            stride: [spec.stride(0), spec.stride(1)],
            before: [padding[0].pad_before, padding[1].pad_before],
            taps: Tensor::from_shape(&[by_place.len()], &by_place)?.into(),
            bias: Tensor::from_shape(&[channels], &bias)?.into(),
        }))
    }

    fn shape(&self) -> [usize; 4] {
        [1, self.output[0], self.output[1], self.channels]
    }
}

impl Op for DepthWise {
    fn name(&self) -> StaticName {
        "ChannelsLastDepthWise".into()
    }

    op_as_typed_op!();
}

impl EvalOp for DepthWise {
    op_out_of_plan!();

    fn eval(&self, _: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let [rows, columns] = self.input;
        let input = inputs[0].to_plain_array_view::<f32>()?;
        let input = input.as_slice().context("the input is not in one piece")?;
        ensure!(input.len() == rows * columns * self.channels);
        let (taps, bias) = (self.taps.to_plain_array_view::<f32>()?, self.bias.to_plain_array_view::<f32>()?);
        let mut output = Tensor::zero::<f32>(&self.shape())?;
        let mut view = output.to_plain_array_view_mut::<f32>()?;
        Arch::new().dispatch(Filter {
            of: self,
            input,
            taps: taps.as_slice().context("the taps are not in one piece")?,
            bias: bias.as_slice().context("the bias is not in one piece")?,
            output: view.as_slice_mut().context("the output is not in one piece")?,
        });
        Ok(tvec!(output.into()))
    }
}

impl TypedOp for DepthWise {
    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        Ok(tvec!(inputs[0].datum_type.fact(self.shape())))
    }

    as_op!();
}

/// One run, compiled for each CPU that pulp knows.
struct Filter<'a> {
    of: &'a DepthWise,
    input: &'a [f32],
    taps: &'a [f32],
    bias: &'a [f32],
    output: &'a mut [f32],
}

impl NullaryFnOnce for Filter<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { of, input, taps, bias, output } = self;
        let channels = of.channels;
        let pixels = output.chunks_exact_mut(channels).enumerate();
        for (pixel, out) in pixels {
            let [y, x] = [pixel / of.output[1], pixel % of.output[1]];
            // the places of the filter that lie on the picture
            let on = |axis: usize, at: usize| {
                let first = at * of.stride[axis];
                let from = of.before[axis].saturating_sub(first);
                let to = (of.input[axis] + of.before[axis]).saturating_sub(first).min(of.kernel[axis]);
                (from..to, first)
            };
            let ((rows, top), (columns, left)) = (on(0, y), on(1, x));
            let mut places = [(0, 0); MOST_PLACES];
            let mut count = 0;
            for row in rows {
                for column in columns.clone() {
                    let (iy, ix) = (top + row - of.before[0], left + column - of.before[1]);
                    places[count] =
                        ((iy * of.input[1] + ix) * channels, (row * of.kernel[1] + column) * channels);
                    count += 1;
                }
            }
            let sums = Sums { input, taps, bias, places: &places[..count] };
            let mut at = sums.blocks::<32>(out, 0);
            at = sums.blocks::<8>(out, at);
            sums.blocks::<1>(out, at);
        }
    }
}

/// Places of the largest filter that we do: 7 x 7.
const MOST_PLACES: usize = 49;

struct Sums<'a> {
    input: &'a [f32],
    taps: &'a [f32],
    bias: &'a [f32],
    /// Where the picture and the taps have each place.
    places: &'a [(usize, usize)],
}

impl Sums<'_> {
    /// As many blocks of `N` channels as there are from `at` on; returns where they end.
    #[inline(always)]
    fn blocks<const N: usize>(&self, out: &mut [f32], at: usize) -> usize {
        let (blocks, _) = out[at..].as_chunks_mut::<N>();
        let mut at = at;
        for block in blocks {
            let mut sums = [0.0; N];
            sums.copy_from_slice(&self.bias[at..at + N]);
            for &(x, k) in self.places {
                let x = &self.input[x + at..x + at + N];
                let k = &self.taps[k + at..k + at + N];
                for lane in 0..N {
                    sums[lane] += x[lane] * k[lane];
                }
            }
            *block = sums;
            at += N;
        }
        at
    }
}
