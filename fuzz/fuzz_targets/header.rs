//! Any bytes as a file: never a panic, the reference implementation's verdict but for the listed
//! differences, and where the file is accepted, a layout without holes whose tensors can be had.
#![no_main]

use libfuzzer_sys::fuzz_target;
use st_format::{Header, SafeTensors};

#[path = "../../crates/format/tests/common/differences.rs"]
mod differences;

/// No file is made longer than this to give a header its data.
const LONGEST: u64 = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check_with_data(bytes.to_vec());
    // And as the text of a header, so that the fuzzer need not keep the length before it right.
    check_with_data([&bytes.len().to_le_bytes(), bytes].concat());
});

/// Gives a file whose header is sound as much data as it asks for.
fn check_with_data(mut file: Vec<u8>) {
    if let Ok(header) = Header::parse(&file)
        && header.file_len() <= LONGEST
    {
        file.resize(header.file_len() as usize, 7);
    }
    check(&file);
}

fn check(bytes: &[u8]) {
    let reference = safetensors::SafeTensors::deserialize(bytes);
    let tensors = match SafeTensors::new(bytes) {
        Ok(tensors) => tensors,
        Err(error) => {
            // Errors can be shown, whatever names are in them.
            let message = error.to_string();
            assert!(
                reference.is_err()
                    || differences::is_listed(bytes)
                    || differences::has_number_next_to_the_largest(bytes),
                "rejected, but not by the reference: {message}"
            );
            return;
        }
    };
    assert!(
        !differences::is_listed(bytes),
        "a listed difference is accepted"
    );
    let reference = reference.expect("accepted, but not by the reference");
    assert_eq!(tensors.header().len(), reference.len());
    assert_eq!(tensors.header().file_len(), bytes.len() as u64);

    let mut end = 0;
    for (view, info) in tensors.tensors().zip(tensors.header().iter()) {
        let view = view.unwrap();
        assert_eq!(view.info(), info);
        assert_eq!(info.data_offsets().start, end);
        end = info.data_offsets().end;
        let bits = info.element_count() * u64::from(info.dtype().bits());
        assert_eq!(bits, 8 * info.byte_len());

        assert_eq!(tensors.header().get(info.name()), Some(info));
        assert_eq!(tensors.tensor(info.name()).unwrap().data(), view.data());
        let expected = reference.tensor(info.name()).unwrap();
        assert_eq!(info.dtype().name(), expected.dtype().to_string());
        assert_eq!(info.shape(), expected.shape());
        assert_eq!(view.data().as_ptr_range(), expected.data().as_ptr_range());
    }
    assert_eq!(end, tensors.header().data_len());
}
