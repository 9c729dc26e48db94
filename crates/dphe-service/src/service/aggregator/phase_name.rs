//! A phase as text in JSON. An unknown phase is the empty string.

use dphe::party::AggregatorPhase;
use serde::{Deserialize, Deserializer, Serializer, de};

pub(super) fn serialize<S: Serializer>(
    phase: &Option<AggregatorPhase>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(phase.map_or("", AggregatorPhase::as_str))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<AggregatorPhase>, D::Error> {
    let name = String::deserialize(deserializer)?;
    match name.as_str() {
        "" => Ok(None),
        name => name.parse().map(Some).map_err(de::Error::custom),
    }
}
