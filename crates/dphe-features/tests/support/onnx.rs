//! Tiny hand-encoded ONNX networks: a chain of nodes without weights.
#![allow(dead_code, reason = "every test uses a part of it")]

/// Encodes a length-delimited protocol buffer field.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 127 {
        out.push(length as u8 | 128);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend(bytes);
    out
}

fn number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

/// Encodes a tensor's name and shape. `None` is an axis of any size.
fn value(name: &str, shape: &[Option<usize>]) -> Vec<u8> {
    let axis = |size: &Option<usize>| match size {
        Some(size) => {
            let mut bytes = vec![1 << 3];
            let mut size = *size;
            while size > 127 {
                bytes.push(size as u8 | 128);
                size >>= 7;
            }
            bytes.push(size as u8);
            field(1, &bytes)
        }
        None => field(1, &[]),
    };
    let shape: Vec<u8> = shape.iter().flat_map(axis).collect();
    let tensor = [number(1, 1), field(2, &shape)].concat();
    [field(1, name.as_bytes()), field(2, &field(1, &tensor))].concat()
}

/// Encodes a network that applies `operators` to pictures of `side` pixels. Its tensors are named `t0`, `t1`, ...
pub(crate) fn network(side: usize, operators: &[&str], output_axes: usize) -> Vec<u8> {
    let nodes = operators.iter().enumerate().flat_map(|(i, operator)| {
        let node = [
            field(1, format!("t{i}").as_bytes()),
            field(2, format!("t{}", i + 1).as_bytes()),
            field(4, operator.as_bytes()),
        ];
        field(1, &node.concat())
    });
    let input = value("t0", &[None, Some(3), Some(side), Some(side)]);
    let output = value(&format!("t{}", operators.len()), &vec![None; output_axes]);
    let graph: Vec<u8> =
        nodes.chain(field(2, b"graph")).chain(field(11, &input)).chain(field(12, &output)).collect();
    [number(1, 8), field(7, &graph), field(8, &number(2, 13))].concat()
}
