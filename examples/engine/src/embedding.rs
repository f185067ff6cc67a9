//! Hidden states become embeddings, and embeddings are compared.

use crate::Batch;

/// Each sentence's embedding: the mean of its tokens' hidden states, padding left out, scaled to
/// length 1. `hidden_states` is `[sentence, token, feature]` in row-major order.
pub fn mean_pooled(hidden_states: &[f32], batch: &Batch) -> Vec<Vec<f32>> {
    let features = hidden_states.len() / batch.ids().len().max(1);
    let states = hidden_states.chunks(features.max(1));
    let mut sums = vec![vec![0.0; features]; batch.sentences()];
    for (token, (state, mask)) in states.zip(batch.mask()).enumerate() {
        if *mask != 0 {
            add(&mut sums[token / batch.tokens_per_sentence()], state);
        }
    }
    // Scaled to length 1, the sum is what the mean is.
    sums.into_iter().map(normalised).collect()
}

fn add(sum: &mut [f32], summand: &[f32]) {
    for (sum, summand) in sum.iter_mut().zip(summand) {
        *sum += summand;
    }
}

fn normalised(mut vector: Vec<f32>) -> Vec<f32> {
    let length = dot(&vector, &vector).sqrt();
    if length > 0.0 {
        for element in &mut vector {
            *element = (f64::from(*element) / length) as f32;
        }
    }
    vector
}

/// The cosine of the angle between two embeddings: 1 for the same direction.
pub fn cosine_similarity(a: &[f32], b: &[f32]) -> f64 {
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// In F64, in which a distance of 1e-7 is not lost to rounding.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(&a, &b)| f64::from(a) * f64::from(b))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::tests::batch;

    #[test]
    fn the_mean_is_of_a_sentences_own_tokens() {
        let batch = batch(&["a b", "a"]);
        let padding = [1000.0, 1000.0];
        let hidden_states = [[6.0, 2.0], [0.0, 6.0], [0.0, -2.0], padding];
        let embeddings = mean_pooled(hidden_states.as_flattened(), &batch);
        assert_eq!(embeddings, [[0.6, 0.8], [0.0, -1.0]]);
    }

    #[test]
    fn sentences_without_tokens_have_no_embedding_but_a_place() {
        assert_eq!(mean_pooled(&[], &batch(&[])), Vec::<Vec<f32>>::new());
        assert_eq!(
            mean_pooled(&[], &batch(&["", ""])),
            [vec![], vec![]] as [Vec<f32>; 2]
        );
    }

    #[test]
    fn similarity_is_that_of_directions() {
        assert_eq!(cosine_similarity(&[1.0, 0.0], &[5.0, 0.0]), 1.0);
        assert_eq!(cosine_similarity(&[1.0, 0.0], &[0.0, 2.0]), 0.0);
        assert_eq!(cosine_similarity(&[1.0, 0.0], &[-1.0, 0.0]), -1.0);
    }
}
