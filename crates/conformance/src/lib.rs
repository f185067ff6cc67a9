//! One battery of checks for every adapter of a framework.
//!
//! An adapter's tests say how its tensors are looked into ([`Adapter`]) and call [`battery!`],
//! which makes a `#[test]` of each check in [`checks`] and [`save_checks`]. The checks know the format and the
//! promises of [`st_format::Loader`], and nothing of any framework.

#![forbid(unsafe_code)]

pub mod checks;
pub mod file;
#[cfg(target_os = "linux")]
pub mod memory;
pub mod model;
pub mod save_checks;

use st_format::{Dtype, Framework, Loader, SaveFrom, Saver};

/// What the battery has to know of an adapter.
pub trait Adapter {
    /// The framework under test.
    type Framework: Framework<Tensor = Self::Tensor> + for<'a> SaveFrom<&'a Self::Tensor>;

    /// Its tensor.
    type Tensor: 'static;

    /// The framework, as a loader takes it.
    fn framework() -> Self::Framework;

    /// The dtype that the adapter's documentation promises for a dtype of a file; `None` where it
    /// promises an error.
    fn promised(dtype: Dtype) -> Option<Dtype>;

    /// What a tensor holds, asked of the framework itself.
    fn look(tensor: &Self::Tensor) -> Held;
}

/// What a tensor holds: row-major, little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The dtype the framework says it has, by the format's name.
    pub dtype: Dtype,
    /// The shape the framework says it has.
    pub shape: Vec<usize>,
    /// The elements' bytes.
    pub bytes: Vec<u8>,
}

fn loader<A: Adapter>() -> Loader<A::Framework> {
    Loader::new(A::framework())
}

fn saver<A: Adapter>() -> Saver<A::Framework> {
    Saver::new()
}

/// Makes a `#[test]` of each check for the adapter.
#[macro_export]
macro_rules! battery {
    ($adapter:ty) => {
        $crate::battery!($adapter: checks:
            every_dtype_is_held_as_promised,
            every_rank_and_empty_dimensions,
            unaligned_data,
            a_sharded_checkpoint,
            memory_and_maps_as_well_as_files,
            many_small_tensors,
            one_large_tensor_by_any_number_of_threads,
            one_tensor_by_name,
            slices,
            filter_and_rename,
            casts,
            a_dtype_the_framework_lacks_spoils_no_other_tensor,
            the_report_says_what_was_done,
            progress_reaches_the_total,
            errors_say_where,
        );
        $crate::battery!($adapter: save_checks:
            what_is_saved_is_what_is_held,
            files_are_those_of_the_reference,
            casts_on_save,
            shards_and_back,
            one_tensor_of_several_names,
            every_name_by_every_policy,
            checksums,
            saving_over_what_was_loaded,
            one_tensor_in_place,
        );

        #[cfg(target_os = "linux")]
        #[test]
        fn peak_memory_is_the_tensors() {
            let path = concat!(module_path!(), "::peak_memory_is_the_tensors");
            let test = path.split_once("::").map_or(path, |(_, test)| test);
            $crate::memory::peak_memory_is_the_tensors::<$adapter>(test);
        }

        #[cfg(target_os = "linux")]
        #[test]
        fn a_save_needs_next_to_no_memory() {
            let path = concat!(module_path!(), "::a_save_needs_next_to_no_memory");
            let test = path.split_once("::").map_or(path, |(_, test)| test);
            $crate::memory::a_save_needs_next_to_no_memory::<$adapter>(test);
        }
    };
    ($adapter:ty: $module:ident: $($check:ident),* $(,)?) => {
        $(#[test]
        fn $check() {
            $crate::$module::$check::<$adapter>();
        })*
    };
}
