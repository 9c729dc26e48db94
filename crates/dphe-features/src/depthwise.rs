//! Depthwise convolution with channels last, vectorised. Mobile networks spend much of their time in it, and tract
//! has no vector code for it on x86. Products are added in the same order everywhere, so features do not depend on
//! the CPU.

use std::sync::Arc;

use pulp::{Arch, NullaryFnOnce};
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::model::Rewriter;
use tract_onnx::tract_core::ops::cnn::conv::{Conv, KernelFormat};
use tract_onnx::tract_core::ops::nn::DataFormat;

/// Replaces every depthwise convolution that this module supports.
pub(crate) fn replace_convolutions(mut model: TypedModel) -> TractResult<TypedModel> {
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
    // the input has a batch axis or not
    let first = usize::from(filter.batch);
    let last = first + 2;
    let input = patch.tap_model(model, node.inputs[0])?;
    let input = patch.wire_node(format!("{name}.last"), AxisOp::Move(first, last), &[input])?;
    let output = patch.wire_node(name, filter, &input)?;
    let output = patch.wire_node(format!("{name}.first"), AxisOp::Move(last, first), &output)?;
    patch.shunt_outside(model, node.id.into(), output[0])?;
    Ok(Some(patch))
}

/// A height and a width.
type Size = [usize; 2];

#[derive(Clone, Debug, Hash, PartialEq, Eq)]
struct DepthWise {
    /// Whether the input has a batch axis, of length one.
    batch: bool,
    channels: usize,
    input: Size,
    output: Size,
    kernel: Size,
    stride: Size,
    /// The rows and columns of zeros before the picture.
    before: Size,
    /// The filter coefficients, position by position, with all channels of each.
    taps: Arc<Tensor>,
    bias: Arc<Tensor>,
}

impl DepthWise {
    /// Returns the equivalent of a convolution, if it is supported.
    fn of(model: &TypedModel, node: &TypedNode, conv: &Conv) -> TractResult<Option<Self>> {
        let (spec, channels) = (&conv.pool_spec, conv.group);
        let fits = conv.q_params.is_none()
            && channels > 1
            && channels == spec.input_channels
            && channels == spec.output_channels
            && matches!(spec.data_format, DataFormat::NCHW | DataFormat::CHW)
            && conv.kernel_fmt == KernelFormat::OIHW
            && spec.dilations().iter().all(|&dilation| dilation == 1)
            && node.inputs.len() == 3;
        let fact = model.outlet_fact(node.inputs[0])?;
        let (batch, height, width) = match (spec.data_format, fact.shape.as_concrete()) {
            (DataFormat::NCHW, Some(&[1, _, height, width])) if fits => (true, height, width),
            (DataFormat::CHW, Some(&[_, height, width])) if fits => (false, height, width),
            _ => return Ok(None),
        };
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
            batch,
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

    fn shape(&self) -> TVec<usize> {
        let batch = self.batch.then_some(1).into_iter();
        batch.chain([self.output[0], self.output[1], self.channels]).collect()
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

/// One evaluation, compiled for each instruction set that pulp knows.
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
            // the filter positions that lie within the picture
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

/// Positions of the largest supported filter, 7 x 7.
const MOST_PLACES: usize = 49;

struct Sums<'a> {
    input: &'a [f32],
    taps: &'a [f32],
    bias: &'a [f32],
    /// The offsets of each filter position in `input` and `taps`.
    places: &'a [(usize, usize)],
}

impl Sums<'_> {
    /// Computes all whole blocks of `N` channels from `at` on and returns the end of the last block.
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

#[cfg(test)]
mod tests {
    use tract_onnx::tract_core::ops::cnn::{PaddingSpec, PoolSpec};

    use super::*;

    /// Returns arbitrary numbers.
    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        (0..count as u32)
            .map(|i| ((i.wrapping_mul(2_654_435_761) ^ seed) >> 8) as f32 / (1 << 23) as f32 - 1.0)
            .collect()
    }

    fn run(model: TypedModel, input: &Tensor) -> Vec<f32> {
        let plan = model.into_optimized().unwrap().into_runnable().unwrap();
        let output = plan.run(tvec!(input.clone().into())).unwrap();
        output[0].to_plain_array_view::<f32>().unwrap().iter().copied().collect()
    }

    #[test]
    fn depthwise_filter_equals_the_convolution_it_replaces() {
        // channels, picture, filter, stride, padding before and after, whether there is a batch axis
        for (channels, [height, width], kernel, stride, [before, after], batch) in [
            (32, [14, 14], [3, 3], [1, 1], [1, 1], true),
            (144, [13, 9], [3, 3], [2, 2], [1, 1], false),
            (2, [5, 6], [5, 3], [1, 2], [2, 1], true),
            (41, [7, 7], [7, 7], [1, 1], [3, 3], true),
            (8, [4, 4], [3, 3], [2, 1], [0, 0], false),
            (3, [1, 1], [3, 3], [1, 1], [1, 1], true),
        ] {
            let case = format!("{channels} {height}x{width} {kernel:?} {stride:?} {before} {after} {batch}");
            let shape: TVec<usize> =
                batch.then_some(1).into_iter().chain([channels, height, width]).collect();
            let conv = Conv {
                pool_spec: PoolSpec {
                    data_format: if batch { DataFormat::NCHW } else { DataFormat::CHW },
                    kernel_shape: kernel.to_vec().into(),
                    padding: PaddingSpec::Explicit(tvec![before; 2], tvec![after; 2]),
                    dilations: None,
                    strides: Some(stride.to_vec().into()),
                    input_channels: channels,
                    output_channels: channels,
                },
                kernel_fmt: KernelFormat::OIHW,
                group: channels,
                q_params: None,
            };
            let taps = numbers(channels * kernel[0] * kernel[1], 1);
            let taps = Tensor::from_shape(&[channels, 1, kernel[0], kernel[1]], &taps).unwrap();
            let bias = Tensor::from_shape(&[channels], &numbers(channels, 2)).unwrap();
            let mut model = TypedModel::default();
            let source = model.add_source("x", f32::fact(&shape)).unwrap();
            let taps = model.add_const("k", taps).unwrap();
            let bias = model.add_const("b", bias).unwrap();
            let output = model.wire_node("conv", conv, &[source, taps, bias]).unwrap();
            model.select_output_outlets(&output).unwrap();

            let input = Tensor::from_shape(&shape, &numbers(shape.iter().product(), 3)).unwrap();
            let ours = replace_convolutions(model.clone()).unwrap();
            assert!(ours.nodes().iter().any(|node| node.op.name() == "ChannelsLastDepthWise"), "{case}");
            let (ours, others) = (run(ours, &input), run(model, &input));
            assert_eq!(ours.len(), others.len(), "{case}");
            for (a, b) in ours.iter().zip(&others) {
                assert!((a - b).abs() < 1e-4, "{case}: {a} {b}");
            }
        }
    }
}
