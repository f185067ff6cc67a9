//! A linear layer that computes with weights where they lie in a mapped file.

use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;
use bytes::Bytes;
use candle_core::quantized::{
    GgmlDType, GgmlType, QMatMul, QStorage, QTensor, QuantizedType, k_quants,
};
use candle_core::{CpuStorage, Device, Module, Tensor};
use half::{bf16, f16};
use st_format::{Checkpoint, Dtype, Error, ErrorKind, Result};

use crate::Loader;

/// A linear layer on the CPU whose weight is not copied: it stays in the file, which is mapped,
/// and is read through the page cache whenever the layer is applied.
///
/// candle's `Tensor` owns its memory, but its quantised matrices take storage of any kind, and F32,
/// F16 and BF16 are kinds of them. So this is a [`Module`] and no `Tensor`. What differs from
/// candle-nn's `Linear`:
///
/// - Input is F32 (or F16), output is the same. For F16 and BF16 weights candle rounds the input
///   to the weight's dtype and adds the products up in F32.
/// - It computes one dot product per output, which suits the single rows of a decoder. For many
///   rows at once a matrix product of `Tensor`s is faster.
/// - There is no gradient.
/// - candle chooses its vector code when it is compiled. Built for the machine at hand
///   (`RUSTFLAGS="-C target-cpu=native"`, as candle's own examples are), one row through a
///   4096 × 4096 layer took as long as through `Linear` for F16 and F32, and a twentieth for BF16
///   (x86-64 with AVX-512). Built for any x86-64 it took 40 times as long for F16, 1.5 times for
///   F32 and a third for BF16. Measure before you choose it.
///
/// ```
/// use candle_core::{DType, Device, Module, Tensor};
/// use st_candle::MappedLinear;
/// use st_format::Checkpoint;
///
#[doc = include_str!("doc_setup.txt")]
/// // SAFETY: nobody writes to the file while the checkpoint or the layer lives.
/// let checkpoint = unsafe { Checkpoint::map(&path) }?;
/// let layer = MappedLinear::new(&checkpoint, "model.weight", None)?;
/// let output = layer.forward(&Tensor::ones((1, 3), DType::F32, &Device::Cpu)?)?;
/// assert_eq!(output.to_vec2::<f32>()?, [[4.5, 4.5]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct MappedLinear {
    weight: QMatMul,
    bias: Option<Tensor>,
}

impl MappedLinear {
    /// The layer of a weight of shape (outputs, inputs) and a bias, which is loaded.
    ///
    /// The layer keeps the file mapped. What [`Checkpoint::map`] asks of its caller holds as long
    /// as any layer lives.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) where the checkpoint is not in memory or
    /// mapped, or the weight is no matrix; [`Unsupported`](ErrorKind::Unsupported) where its dtype
    /// is none of F32, F16 and BF16; [`Misaligned`](ErrorKind::Misaligned) where its data is not
    /// aligned to its dtype.
    pub fn new(checkpoint: &Checkpoint, weight: &str, bias: Option<&str>) -> Result<MappedLinear> {
        let bias = match bias {
            None => None,
            Some(bias) => Some(
                Loader::new(&Device::Cpu)
                    .cast_floats(Dtype::F32)
                    .load_tensor(checkpoint, bias)?,
            ),
        };
        let weight = map_matrix(checkpoint, weight)
            .map_err(|error| error.with_path(checkpoint.path()).with_tensor(weight))?;
        Ok(MappedLinear { weight, bias })
    }
}

impl Module for MappedLinear {
    fn forward(&self, xs: &Tensor) -> candle_core::Result<Tensor> {
        let product = self.weight.forward(&xs.contiguous()?)?;
        match &self.bias {
            None => Ok(product),
            Some(bias) => product.broadcast_add(&bias.to_dtype(product.dtype())?),
        }
    }
}

fn map_matrix(checkpoint: &Checkpoint, name: &str) -> Result<QMatMul> {
    let info = checkpoint.info(name)?;
    let &[outputs, inputs] = info.shape() else {
        let message = format!("shape is {:?}, expected a matrix", info.shape());
        return Err(Error::new(ErrorKind::InvalidRequest, message));
    };
    let bytes = checkpoint.bytes(name)?.ok_or_else(|| {
        let message = "the checkpoint is read from files, expected one that is mapped";
        Error::new(ErrorKind::InvalidRequest, message)
    })?;
    let storage = match info.dtype() {
        Dtype::F32 => Mapped::<f32>::storage(bytes)?,
        Dtype::F16 => Mapped::<f16>::storage(bytes)?,
        Dtype::BF16 => Mapped::<bf16>::storage(bytes)?,
        other => {
            let message = format!("a mapped layer computes with F32, F16 and BF16, not {other}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    };
    let matrix = QTensor::new(storage, (outputs, inputs));
    let matrix = matrix.map_err(|error| Error::framework("candle", error))?;
    // Not `QMatMul::from_qtensor`, which would turn these dtypes into a tensor of their own.
    Ok(QMatMul::QTensor(Arc::new(matrix)))
}

/// Elements that lie in a map, as candle's quantised storage.
struct Mapped<T> {
    bytes: Bytes,
    elements: PhantomData<T>,
}

impl<T: GgmlType + Pod + Send + Sync> Mapped<T> {
    fn storage(bytes: Bytes) -> Result<QStorage> {
        if !bytes.as_ptr().addr().is_multiple_of(align_of::<T>()) {
            let message = format!(
                "its data does not lie at a multiple of {} bytes, so it cannot be used in place",
                align_of::<T>()
            );
            return Err(Error::new(ErrorKind::Misaligned, message));
        }
        Ok(QStorage::Cpu(Box::new(Mapped::<T> {
            bytes,
            elements: PhantomData,
        })))
    }

    fn elements(&self) -> &[T] {
        // Aligned and of whole elements, as checked above and by the header; else empty.
        bytemuck::try_cast_slice(&self.bytes).unwrap_or_default()
    }
}

impl<T: GgmlType + Pod + Send + Sync> QuantizedType for Mapped<T> {
    fn dtype(&self) -> GgmlDType {
        T::DTYPE
    }

    fn matmul_t(
        &self,
        mkn: (usize, usize, usize),
        lhs: &[f32],
        dst: &mut [f32],
    ) -> candle_core::Result<()> {
        k_quants::matmul(mkn, lhs, self.elements(), dst)
    }

    fn matmul_t_f16(
        &self,
        mkn: (usize, usize, usize),
        lhs: &[f16],
        dst: &mut [f16],
    ) -> candle_core::Result<()> {
        k_quants::matmul_f16(mkn, lhs, self.elements(), dst)
    }

    fn embedding(
        &self,
        ids: &[u32],
        rows: usize,
        hidden: usize,
    ) -> candle_core::Result<CpuStorage> {
        let mut found = vec![0.0; ids.len() * hidden];
        for (&id, found) in ids.iter().zip(found.chunks_exact_mut(hidden.max(1))) {
            let row = (id as usize)
                .checked_mul(hidden)
                .filter(|_| (id as usize) < rows);
            let row = row.and_then(|start| self.elements().get(start..start + hidden));
            let row = row.ok_or_else(|| {
                candle_core::Error::Msg(format!("embedding id {id} is not below {rows}"))
            })?;
            T::to_float(row, found);
        }
        Ok(CpuStorage::F32(found))
    }

    fn dequantize(&self, elements: usize) -> candle_core::Result<CpuStorage> {
        let mut values = vec![0.0; elements];
        T::to_float(self.elements(), &mut values);
        Ok(CpuStorage::F32(values))
    }

    fn storage_size_in_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    fn block_size(&self) -> usize {
        T::BLCK_SIZE
    }

    // candle quantises into storage it has just made, never into one it was given.
    fn from_float(&mut self, _: &[f32]) {}

    fn from_float_imatrix(&mut self, _: &[f32], _: &[f32], _: usize) {}

    fn size(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_where_the_bytes_are() {
        let bytes = Bytes::from(vec![0; 32]);
        let start = bytes.as_ptr();
        let aligned = bytes.slice(start.align_offset(4)..).slice(..16);
        let mapped = Mapped::<f32> {
            bytes: aligned.clone(),
            elements: PhantomData,
        };
        assert_eq!(mapped.elements().len(), 4);
        assert_eq!(mapped.elements().as_ptr().cast(), aligned.as_ptr());
        assert!(Mapped::<f32>::storage(aligned.slice(1..5)).is_err());
    }
}
