//! Runs an ONNX network with tract: one prepared picture in, its features out.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prost::Message as _;
use sha2::{Digest, Sha256};
use tract_onnx::pb::{self, tensor_shape_proto::dimension::Value, type_proto};
use tract_onnx::prelude::*;
use tract_onnx::tract_core::transform::get_transform;

use crate::catch_panic::catch_panic;
use crate::{Error, depthwise};

/// A loaded network that several threads can run at once.
pub struct FeatureModel {
    path: PathBuf,
    plan: Arc<TypedRunnableModel>,
    digest: String,
    output: String,
    side: usize,
    width: usize,
    /// Whether the output tensor has spatial axes, over which the mean is taken.
    maps: bool,
}

/// A network's ONNX file without the outputs of its graph.
///
/// The bytes of a protobuf message may be continued: another `ModelProto` appended to them adds its nodes, weights and
/// outputs to the graph.
#[derive(Debug)]
pub struct OnnxNetwork {
    /// The encoded `ModelProto`.
    pub bytes: Vec<u8>,
    /// The names that the graph's tensors have.
    pub tensors: HashSet<String>,
}

impl FeatureModel {
    /// Loads a network for square pictures of `side` pixels. `output` names the tensor that holds the features. The
    /// default is the last global average pool, or else the network's output averaged over its spatial axes.
    ///
    /// # Errors
    /// If the file is not an ONNX network for such pictures, or uses operators that tract does not support.
    pub fn load(path: &Path, side: usize, output: Option<&str>) -> Result<Self, Error> {
        let bytes = fs::read(path).map_err(Error::read(path))?;
        catch_panic(|| Self::build(path, &bytes, side, output))
            .unwrap_or_else(|panic| Err(Error::table(format!("the network is damaged: {panic}"), EXPORT)))
            .map_err(|error| error.in_file(path))
    }

    fn build(path: &Path, bytes: &[u8], side: usize, output: Option<&str>) -> Result<Self, Error> {
        let tract = onnx();
        let proto = tract.proto_model_for_read(&mut &bytes[..]).ok();
        let Some(graph) = proto.as_ref().and_then(|proto| proto.graph.as_ref()) else {
            return Err(Error::table("not an ONNX network", EXPORT));
        };
        let mut missing: Vec<&str> = graph
            .node
            .iter()
            .map(|node| node.op_type.as_str())
            .filter(|name| !tract.op_register.0.contains_key(*name))
            .collect();
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            return Err(Error::table(
                format!("the network uses unsupported ONNX operators: {}", missing.join(", ")),
                "Export the network for inference, or use another network.",
            ));
        }
        if graph.initializer.iter().any(|tensor| tensor.data_location.is_some_and(|place| place != 0)) {
            return Err(Error::table(
                "the weights are in another file, which the digest of this file would not cover",
                "Put everything into one file with onnx.save(onnx.load(path), path).",
            ));
        }
        check_input(graph, side)?;
        let output = output_name(graph, output)?;

        let failed = |error: TractError| Error::table(format!("the network cannot run: {error:#}"), EXPORT);
        let proto = proto.as_ref().ok_or_else(|| Error::table("not an ONNX network", EXPORT))?;
        let parsed = tract.parse(proto, None).map_err(failed)?;
        let Some(&outlet) = parsed.outlets_by_name.get(&output) else {
            return Err(Error::table(format!("there is no tensor {output:?}"), EXPORT));
        };
        // A batch of one is as fast as larger batches, and features do not depend on other pictures. The layout with
        // channels last is a tenth faster, mostly in depthwise convolutions.
        let model = parsed
            .model
            .with_output_outlets(&[outlet])
            .and_then(|model| model.with_input_fact(0, f32::fact([1, 3, side, side]).into()))
            .and_then(|model| model.into_typed())
            .and_then(|model| model.into_decluttered())
            .and_then(depthwise::replace_convolutions)
            .and_then(channels_last)
            .and_then(|model| model.into_optimized())
            .map_err(failed)?;
        let shape =
            model.output_fact(0).ok().and_then(|fact| fact.shape.as_concrete().map(<[usize]>::to_vec));
        let width = match shape.as_deref() {
            Some(&[1, width]) | Some(&[1, width, _, _]) if width > 0 => width,
            _ => {
                return Err(Error::table(
                    format!(
                        "{output:?} has the shape {shape:?}, which is not one feature vector per picture"
                    ),
                    "Name another tensor with --tensor.",
                ));
            }
        };
        let maps = shape.is_some_and(|shape| shape.len() == 4);
        let plan = model.into_runnable().map_err(failed)?;
        let digest = digest_of(bytes);
        Ok(Self { path: path.into(), plan, digest, output, side, width, maps })
    }

    /// Returns the number of features per picture.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the SHA-256 of the network's file, in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the name of the tensor that holds the features.
    pub fn output(&self) -> &str {
        &self.output
    }

    /// Returns whether that tensor has spatial axes, over which the mean is taken.
    pub fn has_spatial_axes(&self) -> bool {
        self.maps
    }

    /// Reads the network's file again, to continue its graph in another ONNX file.
    ///
    /// # Errors
    /// If the file cannot be read or has changed since the network was loaded.
    pub fn to_onnx(&self) -> Result<OnnxNetwork, Error> {
        let bytes = fs::read(&self.path).map_err(Error::read(&self.path))?;
        if digest_of(&bytes) != self.digest {
            return Err(Error::table("the file changed while it was in use", "Run the command again.")
                .in_file(&self.path));
        }
        let mut proto = onnx()
            .proto_model_for_read(&mut &bytes[..])
            .map_err(|_| Error::table("not an ONNX network", EXPORT).in_file(&self.path))?;
        let graph = proto.graph.get_or_insert_default();
        graph.output.clear();
        let outputs = graph.node.iter().flat_map(|node| &node.output);
        let inputs = graph.input.iter().map(|input| &input.name);
        let weights = graph.initializer.iter().map(|tensor| &tensor.name);
        let tensors = outputs.chain(inputs).chain(weights).cloned().collect();
        Ok(OnnxNetwork { bytes: proto.encode_to_vec(), tensors })
    }

    /// Computes the features of one prepared picture of 3 planes with `side` x `side` values.
    pub(crate) fn run(&self, picture: &[f32]) -> Result<Vec<f32>, Error> {
        let failed = |what: String| Error::File { path: self.path.clone(), what, hint: EXPORT.into() };
        let found = catch_panic(|| {
            let input = Tensor::from_shape(&[1, 3, self.side, self.side], picture)?;
            let output = self.plan.run(tvec!(input.into()))?;
            Ok(output[0].to_plain_array_view::<f32>()?.iter().copied().collect())
        });
        let found: TractResult<Vec<f32>> = found.map_err(failed)?;
        let values = found.map_err(|error| failed(format!("{error:#}")))?;
        // the mean over the spatial axes, if there are any
        let pixels = values.len() / self.width;
        if pixels <= 1 {
            return Ok(values);
        }
        Ok(values.chunks_exact(pixels).map(|plane| plane.iter().sum::<f32>() / pixels as f32).collect())
    }
}

fn channels_last(model: TypedModel) -> TractResult<TypedModel> {
    match get_transform("conv_nhwc")? {
        Some(transform) => transform.transform_into(model)?.into_decluttered(),
        None => Ok(model),
    }
}

fn digest_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

const EXPORT: &str = "Export the network to ONNX again, with float32 RGB pictures in NCHW order as input.";

/// Checks that the only input besides weights takes a batch of RGB pictures of the right size.
fn check_input(graph: &pb::GraphProto, side: usize) -> Result<(), Error> {
    let is_weight = |name: &str| graph.initializer.iter().any(|tensor| tensor.name == name);
    let inputs: Vec<_> = graph.input.iter().filter(|input| !is_weight(&input.name)).collect();
    let [input] = inputs[..] else {
        return Err(Error::table(format!("the network has {} inputs instead of one", inputs.len()), EXPORT));
    };
    let Some(type_proto::Value::TensorType(tensor)) = input.r#type.as_ref().and_then(|t| t.value.as_ref())
    else {
        return Err(Error::table("the network's input is not a tensor", EXPORT));
    };
    let axes: Vec<Option<usize>> = tensor.shape.iter().flat_map(|shape| &shape.dim).map(size).collect();
    let shown: Vec<String> = axes.iter().map(|a| a.map_or("?".into(), |a| a.to_string())).collect();
    let wanted = |axis: Option<usize>, size: usize| axis.is_none_or(|axis| axis == size);
    match axes[..] {
        [batch, channels, height, width]
            if wanted(batch, 1) && wanted(channels, 3) && wanted(height, side) && wanted(width, side) =>
        {
            Ok(())
        }
        [_, channels, Some(height), Some(width)] if wanted(channels, 3) && height == width => {
            Err(Error::table(
                format!("the network needs pictures of {height} x {height} pixels, but the crop is {side}"),
                format!(
                    "Set --crop {height} --resize {}, and the preprocessing that the network was trained with.",
                    height * 8 / 7
                ),
            ))
        }
        _ => Err(Error::table(
            format!("the network's input is [{}], not [batch, 3, {side}, {side}]", shown.join(", ")),
            EXPORT,
        )),
    }
}

fn size(dimension: &pb::tensor_shape_proto::Dimension) -> Option<usize> {
    match &dimension.value {
        // exporters write 0 or -1 for a free dimension
        Some(Value::DimValue(size)) => usize::try_from(*size).ok().filter(|&size| size > 0),
        _ => None,
    }
}

/// Returns the name of the tensor that holds the features.
fn output_name(graph: &pb::GraphProto, named: Option<&str>) -> Result<String, Error> {
    let outputs = || {
        let names: Vec<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
        names.join(", ")
    };
    if let Some(named) = named {
        let exists = graph.node.iter().any(|node| node.output.iter().any(|output| output == named));
        return if exists {
            Ok(named.to_owned())
        } else {
            Err(Error::table(
                format!("the network has no tensor {named:?}"),
                format!("Use another tensor; the network's outputs are: {}", outputs()),
            ))
        };
    }
    // earlier pools belong to squeeze-and-excitation blocks; the last one feeds the classifier
    let pool = graph
        .node
        .iter()
        .rev()
        .find(|node| node.op_type == "GlobalAveragePool" || is_spatial_mean(graph, node));
    if let Some(name) = pool.and_then(|node| node.output.first()) {
        return Ok(name.clone());
    }
    match &graph.output[..] {
        [output] if rank(output) == Some(4) => Ok(output.name.clone()),
        // a network without its classifier ends in a feature vector; class scores are not features
        [output] if rank(output) == Some(2) && !graph.node.iter().any(is_dense_layer) => {
            Ok(output.name.clone())
        }
        _ => Err(Error::table(
            "the network has no global average pool and no output with spatial axes to average",
            format!("Name the tensor with --tensor; the network's outputs are: {}", outputs()),
        )),
    }
}

/// Returns whether a node is a mean over height and width. The axes are an attribute or, since opset 18, a second
/// input that is an initializer or a constant.
fn is_spatial_mean(graph: &pb::GraphProto, node: &pb::NodeProto) -> bool {
    if node.op_type != "ReduceMean" {
        return false;
    }
    let attribute = node.attribute.iter().find(|attribute| attribute.name == "axes").map(|a| a.ints.clone());
    let input = || {
        let name = node.input.get(1)?;
        let weight = graph.initializer.iter().find(|tensor| tensor.name == *name);
        let constant = || {
            let constant = graph
                .node
                .iter()
                .find(|node| node.op_type == "Constant" && node.output.first() == Some(name));
            constant?.attribute.iter().find_map(|attribute| attribute.t.as_ref())
        };
        let tensor = weight.or_else(constant)?;
        let raw = tensor.raw_data.as_chunks::<8>().0.iter().map(|&bytes| i64::from_le_bytes(bytes));
        Some(tensor.int64_data.iter().copied().chain(raw).collect())
    };
    matches!(attribute.or_else(input).as_deref(), Some([2, 3] | [-2, -1]))
}

fn is_dense_layer(node: &pb::NodeProto) -> bool {
    matches!(node.op_type.as_str(), "Gemm" | "MatMul")
}

fn rank(value: &pb::ValueInfoProto) -> Option<usize> {
    let Some(type_proto::Value::TensorType(tensor)) = value.r#type.as_ref()?.value.as_ref() else {
        return None;
    };
    Some(tensor.shape.as_ref()?.dim.len())
}
