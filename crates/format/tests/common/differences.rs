//! Where this crate rejects a header that the reference implementation accepts, found by other
//! means than this crate's own parser: names, metadata keys or fields given twice, an entry
//! written as an array, a dtype written as an object.
//!
//! Included by the fuzz targets, too.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

/// Whether the header of these bytes of a file falls under one of the listed differences, so that
/// it is rejected.
pub(crate) fn is_listed(file: &[u8]) -> bool {
    let Some(Json::Object(header)) = header_of(file) else {
        return false;
    };
    has_duplicates(&header)
        || header.iter().any(|(name, value)| match value {
            Json::Object(fields) if name == "__metadata__" => has_duplicates(fields),
            Json::Object(fields) => {
                let is_object = |(field, value): &(String, Json)| {
                    field == "dtype" && matches!(value, Json::Object(_))
                };
                has_duplicates(fields) || fields.iter().any(is_object)
            }
            Json::Array(_) => name != "__metadata__",
            Json::NextToLargest | Json::Other => false,
        })
}

/// Whether there is a number so near the largest f64 that it depends on the rounding whether it
/// fits: what the reference accepts of these may be rejected.
pub(crate) fn has_number_next_to_the_largest(file: &[u8]) -> bool {
    fn is_in(json: &Json) -> bool {
        match json {
            Json::Object(members) => members.iter().any(|(_, value)| is_in(value)),
            Json::Array(items) => items.iter().any(is_in),
            Json::NextToLargest => true,
            Json::Other => false,
        }
    }
    header_of(file).is_some_and(|header| is_in(&header))
}

fn header_of(file: &[u8]) -> Option<Json> {
    let (prefix, rest) = file.split_first_chunk()?;
    let len = usize::try_from(u64::from_le_bytes(*prefix)).ok()?;
    serde_json::from_slice(rest.get(..len)?).ok()
}

fn has_duplicates(members: &[(String, Json)]) -> bool {
    let mut keys: Vec<&str> = members.iter().map(|(key, _)| key.as_str()).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

/// JSON whose objects keep all of their members.
enum Json {
    Object(Vec<(String, Json)>),
    Array(Vec<Json>),
    NextToLargest,
    Other,
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Json::Object(members))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element()? {
            array.push(item);
        }
        Ok(Json::Array(array))
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
        Ok(match number.abs() < 1.797_693_134_862_31e308 {
            true => Json::Other,
            false => Json::NextToLargest,
        })
    }

    fn visit_str<E>(self, _: &str) -> Result<Json, E> {
        Ok(Json::Other)
    }
}
