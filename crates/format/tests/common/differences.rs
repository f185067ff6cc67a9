//! Where this crate rejects a header that the reference implementation accepts, found by other
//! means than this crate's own parser: names, metadata keys or fields given twice, an entry
//! written as an array, a dtype written as an object.
//!
//! Included by the fuzz targets, too.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Whether the header of these bytes of a file falls under one of the listed differences.
pub(crate) fn is_listed(file: &[u8]) -> bool {
    let Some(prefix) = file.first_chunk() else {
        return false;
    };
    let Ok(len) = usize::try_from(u64::from_le_bytes(*prefix)) else {
        return false;
    };
    let text = file[prefix.len()..].get(..len);
    let json = text.and_then(|text| serde_json::from_slice::<Json>(text).ok());
    let Some(Json::Object(header)) = json else {
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
            Json::Array => name != "__metadata__",
            Json::Other => false,
        })
}

fn has_duplicates(members: &[(String, Json)]) -> bool {
    let mut keys: Vec<&str> = members.iter().map(|(key, _)| key.as_str()).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

/// JSON whose objects keep all of their members.
enum Json {
    Object(Vec<(String, Json)>),
    Array,
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
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Json::Array)
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

    fn visit_f64<E>(self, _: f64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_str<E>(self, _: &str) -> Result<Json, E> {
        Ok(Json::Other)
    }
}
