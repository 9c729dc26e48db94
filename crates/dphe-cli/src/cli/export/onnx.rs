//! A model as an ONNX graph, alone or behind the network that computes its features.
//!
//! The few messages that a linear model needs are encoded here, so that this export works in builds without an ONNX
//! runtime. The numbers of the fields are those of `onnx.proto`.

use super::{CliError, NetworkGraph};
use crate::model::{LabelKind, Model};

/// Prefix of the names that are added to a graph. No exporter uses it.
const PREFIX: &str = "dphe/";
/// The oldest version of the operators that this graph can use. A network keeps its own version.
const OPSET: u64 = 13;
/// The version of the file format that goes with `OPSET`.
const IR_VERSION: u64 = 7;

/// Encodes a graph from `features` (batch x features) to `scores` (batch x classes) and, unless the classes are
/// attributes, `label` (the class with the highest score). With a network, the graph starts from prepared pictures.
pub(super) fn encode(model: &Model, network: Option<NetworkGraph>) -> Result<Vec<u8>, CliError> {
    match network {
        None => Ok(alone(model)),
        Some(network) => behind(model, network),
    }
}

fn alone(model: &Model) -> Vec<u8> {
    let opset = Message::default().integer(2, OPSET);
    let mut graph = Message::default().text(2, "dphe");
    graph.push(11, &value("features", Elements::Float, &[None, Some(model.weights.features())]));
    append(model, &mut graph, "features");
    Message::default()
        .integer(1, IR_VERSION)
        .text(2, "dphe")
        .message(7, &graph)
        .message(8, &opset)
        .message(14, &class_names(model))
        .bytes
}

fn behind(model: &Model, network: NetworkGraph) -> Result<Vec<u8>, CliError> {
    let NetworkGraph { mut bytes, tensors, mut features, has_spatial_axes } = network;
    if let Some(name) = ["scores", "label"].into_iter().find(|&name| tensors.contains(name)) {
        return Err(CliError::Data {
            what: format!("the network already has a tensor named {name:?}"),
            hint: "Export the network with other tensor names, or leave out --network.".into(),
        });
    }
    let mut graph = Message::default();
    if has_spatial_axes {
        graph.push(1, &node("GlobalAveragePool", &[&features], &named("pooled")));
        features = named("pooled");
    }
    graph.push(1, &node("Flatten", &[&features], &named("features")).message(5, &attribute("axis", 1)));
    append(model, &mut graph, &named("features"));
    // a decoder adds the fields of a repeated `graph` to the first one
    let more = Message::default().message(7, &graph).message(14, &class_names(model));
    bytes.extend(more.bytes);
    Ok(bytes)
}

/// Appends standardisation, clipping, scores and label to a tensor of features.
fn append(model: &Model, graph: &mut Message, features: &str) {
    let (width, classes) = (model.weights.features(), model.weights.classes());
    let (standardizer, clip) = (&model.standardizer, model.standardizer.clip());
    for (name, shape, values) in [
        ("mean", &[width][..], standardizer.mean()),
        ("deviation", &[width], standardizer.deviation()),
        ("lowest", &[1], &[-clip]),
        ("highest", &[1], &[clip]),
        ("weights", &[width, classes], model.weights.flat()),
        ("intercepts", &[classes], model.weights.intercepts()),
    ] {
        graph.push(5, &tensor(name, shape, values));
    }
    let mut step = |operator, left: &str, right: &str, to: &str| {
        graph.push(1, &node(operator, &[left, &named(right)], to));
    };
    step("Sub", features, "mean", &named("centred"));
    step("Div", &named("centred"), "deviation", &named("scaled"));
    step("Max", &named("scaled"), "lowest", &named("raised"));
    step("Min", &named("raised"), "highest", &named("cut"));
    step("MatMul", &named("cut"), "weights", &named("products"));
    step("Add", &named("products"), "intercepts", "scores");
    graph.push(12, &value("scores", Elements::Float, &[None, Some(classes)]));
    // a sample may have several attributes, so the highest score has no meaning there
    if model.about.labels == LabelKind::Classes {
        let label = node("ArgMax", &["scores"], "label");
        graph.push(1, &label.message(5, &attribute("axis", 1)).message(5, &attribute("keepdims", 0)));
        graph.push(12, &value("label", Elements::Int64, &[None]));
    }
}

/// Returns the names of the classes as a JSON list, in a `StringStringEntryProto`.
fn class_names(model: &Model) -> Message {
    let value = serde_json::Value::from(model.about.classes.clone()).to_string();
    Message::default().text(1, "classes").text(2, &value)
}

fn named(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// Returns a `NodeProto`.
fn node(operator: &str, inputs: &[&str], output: &str) -> Message {
    let name = format!("{PREFIX}{operator}/{}", output.trim_start_matches(PREFIX));
    let inputs = inputs.iter().fold(Message::default(), |node, input| node.text(1, input));
    inputs.text(2, output).text(3, &name).text(4, operator)
}

/// Returns an `AttributeProto` that holds an integer.
fn attribute(name: &str, value: u64) -> Message {
    const INT: u64 = 2;
    Message::default().text(1, name).integer(3, value).integer(20, INT)
}

/// The types of elements that the graph uses, by their numbers in `TensorProto.DataType`.
#[derive(Clone, Copy)]
enum Elements {
    Float = 1,
    Int64 = 7,
}

/// Returns a `TensorProto`.
fn tensor(name: &str, shape: &[usize], values: &[f64]) -> Message {
    let raw: Vec<u8> = values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect();
    let shape = shape.iter().fold(Message::default(), |tensor, &size| tensor.integer(1, size as u64));
    shape.integer(2, Elements::Float as u64).text(8, &named(name)).delimited(9, &raw)
}

/// Returns a `ValueInfoProto` of a tensor. A dimension of unknown size is the batch.
fn value(name: &str, elements: Elements, shape: &[Option<usize>]) -> Message {
    let shape = shape.iter().fold(Message::default(), |shape, size| {
        let dimension = match size {
            Some(size) => Message::default().integer(1, *size as u64),
            None => Message::default().text(2, "batch"),
        };
        shape.message(1, &dimension)
    });
    let tensor = Message::default().integer(1, elements as u64).message(2, &shape);
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}

/// A protobuf message that is being encoded.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn integer(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn text(self, field: u64, text: &str) -> Self {
        self.delimited(field, text.as_bytes())
    }

    fn message(self, field: u64, message: &Self) -> Self {
        self.delimited(field, &message.bytes)
    }

    fn delimited(mut self, field: u64, bytes: &[u8]) -> Self {
        const LENGTH_DELIMITED: u64 = 2;
        self.varint(field << 3 | LENGTH_DELIMITED);
        self.varint(bytes.len() as u64);
        self.bytes.extend(bytes);
        self
    }

    fn push(&mut self, field: u64, message: &Self) {
        *self = std::mem::take(self).message(field, message);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}
