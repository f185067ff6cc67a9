//! Embeds sentences and shows how alike they are.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use engine::{BACKENDS, Engine, Reference, cosine_similarity};

const USAGE: &str = "usage: engine MODEL_DIR (--reference FILE | SENTENCE…)

MODEL_DIR holds model.safetensors, config.json and tokenizer.json of a BERT sentence encoder.
With --reference the sentences are those of FILE, and so are the embeddings they must have.";

fn main() -> Result<()> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let reference = arguments.reference.as_deref().map(Reference::read);
    let reference = reference.transpose().context("the reference")?;
    let sentences = match &reference {
        Some(reference) => reference.sentences(),
        None => &arguments.sentences,
    };

    for (backend, load) in BACKENDS {
        let engine = Engine::load(&arguments.model, *load)?;
        let embeddings = engine.embed(sentences)?;
        println!("cosine similarities, by {backend}:");
        print_similarities(sentences, &embeddings);
        if let Some(reference) = &reference {
            let distance = reference.check(&embeddings)?;
            println!("largest cosine distance to the reference: {distance:.1e}");
        }
    }
    Ok(())
}

fn print_similarities(sentences: &[String], embeddings: &[Vec<f32>]) {
    for (sentence, embedding) in sentences.iter().zip(embeddings) {
        for other in embeddings {
            print!("{:5.2} ", cosine_similarity(embedding, other));
        }
        println!(" {sentence}");
    }
}

struct Arguments {
    model: PathBuf,
    reference: Option<PathBuf>,
    sentences: Vec<String>,
}

impl Arguments {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments> {
        let model = arguments.next().context(USAGE)?;
        let mut reference = None;
        let mut sentences = Vec::new();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--reference" => reference = Some(arguments.next().context(USAGE)?.into()),
                _ => sentences.push(argument),
            }
        }
        // Sentences come from the reference or from the command line, not from both or neither.
        ensure!(reference.is_some() == sentences.is_empty(), USAGE);
        Ok(Arguments {
            model: model.into(),
            reference,
            sentences,
        })
    }
}
