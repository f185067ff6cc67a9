//! Sums over tensors.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use st_format::{Dtype, TensorInfo};

/// Of all tensors, and of those of each dtype.
#[derive(Default, Serialize)]
pub(super) struct Totals {
    #[serde(flatten)]
    pub(super) all: Total,
    #[serde(serialize_with = "by_name")]
    pub(super) dtypes: BTreeMap<Dtype, Total>,
}

#[derive(Default, Serialize)]
pub(super) struct Total {
    pub(super) tensors: u64,
    /// Elements of all tensors.
    pub(super) parameters: u64,
    pub(super) bytes: u64,
}

impl Totals {
    pub(super) fn add(&mut self, info: &TensorInfo) {
        self.all.add(info);
        self.dtypes.entry(info.dtype()).or_default().add(info);
    }
}

impl Total {
    fn add(&mut self, info: &TensorInfo) {
        // One file's sums fit; those of several that claim to be as long as files can be do not.
        self.tensors += 1;
        self.parameters = self.parameters.saturating_add(info.element_count());
        self.bytes = self.bytes.saturating_add(info.byte_len());
    }
}

fn by_name<S: Serializer>(
    dtypes: &BTreeMap<Dtype, Total>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(dtypes.iter().map(|(dtype, total)| (dtype.name(), total)))
}
