//! A classifier as an ONNX graph, alone or behind the network its features come from.

use std::path::Path;

use prost::Message as _;
use tract_onnx::pb::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, attribute_proto::AttributeType,
    tensor_proto::DataType, tensor_shape_proto, type_proto,
};

use crate::file::replace;
use crate::{Classifier, Error, FeatureModel};

/// Names of what is added to a graph begin so, and no exporter's do.
const PREFIX: &str = "dphe/";
/// The oldest operators that do what is needed; a network keeps its own.
const OPSET: i64 = 13;
/// The version of the file format that goes with them.
const IR_VERSION: i64 = 7;

impl Classifier {
    /// Writes a graph from `features` (batch x features) to `scores` (batch x classes) and `label` (the class of the
    /// highest score, unless they are attributes); or, with a network, from prepared pictures.
    ///
    /// # Errors
    /// If the classifier is not whole or of another number of features than the network has, or the file cannot be
    /// written; an older one is still there then.
    pub fn write_onnx(&self, path: &Path, network: Option<&FeatureModel>) -> Result<(), Error> {
        self.check()?;
        let model = match network {
            None => self.alone(),
            Some(network) if network.width() != self.mean.len() => {
                return Err(Error::table(
                    format!(
                        "the network has {} features, the classifier {}",
                        network.width(),
                        self.mean.len()
                    ),
                    "the network that the classifier was trained on",
                ));
            }
            Some(network) => self.behind(network)?,
        };
        let bytes = model.encode_to_vec();
        replace(path, |out| std::io::Write::write_all(out, &bytes))
    }

    fn alone(&self) -> ModelProto {
        let mut graph = GraphProto { name: "dphe".into(), ..GraphProto::default() };
        let width = self.mean.len();
        graph.input.push(value("features", DataType::Float, &[None, Some(width)]));
        self.append(&mut graph, "features");
        ModelProto {
            ir_version: IR_VERSION,
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: OPSET }],
            producer_name: "dphe".into(),
            graph: Some(graph),
            metadata_props: vec![self.names()],
            ..ModelProto::default()
        }
    }

    fn behind(&self, network: &FeatureModel) -> Result<ModelProto, Error> {
        let mut model = network.proto()?;
        let Some(graph) = &mut model.graph else {
            return Err(Error::table("not an ONNX network", "the file that was used to extract features"));
        };
        let taken = |name: &str| {
            graph.node.iter().flat_map(|node| &node.output).any(|output| output == name)
                || graph.input.iter().any(|input| input.name == name)
                || graph.initializer.iter().any(|tensor| tensor.name == name)
        };
        if let Some(name) = ["scores", "label"].into_iter().find(|name| taken(name)) {
            return Err(Error::table(
                format!("the network has a tensor called {name:?} already"),
                "export the network with other names, or the classifier alone",
            ));
        }
        graph.output.clear();
        let mut features = network.output().to_owned();
        if network.has_maps() {
            graph.node.push(node("GlobalAveragePool", &[&features], "pooled"));
            features = named("pooled");
        }
        let mut flatten = node("Flatten", &[&features], "features");
        flatten.attribute.push(integer("axis", 1));
        graph.node.push(flatten);
        self.append(graph, &named("features"));
        model.metadata_props.push(self.names());
        Ok(model)
    }

    /// Standardisation, cut-off, scores and label, on top of a tensor of features.
    fn append(&self, graph: &mut GraphProto, features: &str) {
        let (width, classes) = (self.mean.len(), self.classes.len());
        graph.initializer.extend([
            tensor("mean", &[width], &self.mean),
            tensor("deviation", &[width], &self.deviation),
            tensor("lowest", &[1], &[-self.clip]),
            tensor("highest", &[1], &[self.clip]),
            tensor("weights", &[width, classes], &self.weights),
            tensor("intercepts", &[classes], &self.intercepts),
        ]);
        let own = |names: [&str; 2]| names.map(named);
        let mut step = |operator, left: &str, right: &str, to: &str| {
            let right = named(right);
            graph.node.push(node(operator, &[left, &right], to));
        };
        let [centred, scaled] = own(["centred", "scaled"]);
        let [raised, cut] = own(["raised", "cut"]);
        step("Sub", features, "mean", "centred");
        step("Div", &centred, "deviation", "scaled");
        step("Max", &scaled, "lowest", "raised");
        step("Min", &raised, "highest", "cut");
        step("MatMul", &cut, "weights", "products");
        let mut scores = node("Add", &[&named("products"), &named("intercepts")], "");
        scores.output = vec!["scores".into()];
        graph.node.push(scores);
        graph.output.push(value("scores", DataType::Float, &[None, Some(classes)]));
        // attributes have no best one
        if !self.attributes {
            let mut label = node("ArgMax", &["scores"], "label");
            label.output = vec!["label".into()];
            label.attribute = vec![integer("axis", 1), integer("keepdims", 0)];
            graph.node.push(label);
            graph.output.push(value("label", DataType::Int64, &[None]));
        }
    }

    /// The names of the classes, as a JSON list.
    fn names(&self) -> StringStringEntryProto {
        let value = serde_json::Value::from(self.classes.clone()).to_string();
        StringStringEntryProto { key: "classes".into(), value }
    }
}

fn named(name: &str) -> String {
    format!("{PREFIX}{name}")
}

fn node(operator: &str, input: &[&str], output: &str) -> NodeProto {
    NodeProto {
        input: input.iter().map(|&name| name.to_owned()).collect(),
        output: vec![named(output)],
        name: named(operator) + "/" + output,
        op_type: operator.into(),
        ..NodeProto::default()
    }
}

fn integer(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        i: value,
        r#type: AttributeType::Int.into(),
        ..AttributeProto::default()
    }
}

fn tensor(name: &str, shape: &[usize], values: &[f64]) -> TensorProto {
    TensorProto {
        name: named(name),
        dims: shape.iter().map(|&size| size as i64).collect(),
        data_type: DataType::Float.into(),
        raw_data: values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect(),
        ..TensorProto::default()
    }
}

fn value(name: &str, elements: DataType, shape: &[Option<usize>]) -> ValueInfoProto {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let dimension = |size: &Option<usize>| Dimension {
        denotation: String::new(),
        value: Some(match size {
            Some(size) => Value::DimValue(*size as i64),
            None => Value::DimParam("batch".into()),
        }),
    };
    let shape = TensorShapeProto { dim: shape.iter().map(dimension).collect() };
    let tensor = type_proto::Tensor { elem_type: elements.into(), shape: Some(shape) };
    let value = Some(type_proto::Value::TensorType(tensor));
    ValueInfoProto {
        name: name.into(),
        r#type: Some(TypeProto { denotation: String::new(), value }),
        ..ValueInfoProto::default()
    }
}
