//! Which of a module's parameters are loaded or saved.

use burn_core::module::{Module, ModuleVisitor, Param};
use burn_core::tensor::{Bool, Int, Tensor};
use burn_store::PathFilter;
use regex::Regex;
use st_format::Result;

use crate::names::compile;

/// Passes what any of its criteria passes; everything where there is none.
///
/// burn-store's filter has regexes only with its feature `std`, and takes no closures, so they
/// are beside it here.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) paths: PathFilter,
    regexes: Vec<Regex>,
}

impl Filter {
    pub(crate) fn add_regex(&mut self, pattern: &str) -> Result<()> {
        self.regexes.push(compile(pattern)?);
        Ok(())
    }

    /// Whether a tensor of this name passes.
    pub(crate) fn passes(&self, name: &str) -> bool {
        (self.paths.is_empty() && self.regexes.is_empty())
            || self.paths.matches(name)
            || self.regexes.iter().any(|regex| regex.is_match(name))
    }

    /// The filter as burn-store takes it, for the parameters of `module`.
    pub(crate) fn for_module<M: Module>(
        &self,
        module: &M,
        skip_enum_variants: bool,
    ) -> Option<PathFilter> {
        if self.regexes.is_empty() {
            return (!self.paths.is_empty()).then(|| self.paths.clone());
        }
        let mut parameters = Parameters::new(skip_enum_variants);
        module.visit(&mut parameters);
        let passes = |path: &String| self.regexes.iter().any(|regex| regex.is_match(path));
        let matching = parameters.found.into_iter().filter(passes);
        Some(self.paths.clone().with_full_paths(matching))
    }
}

/// The paths of a module's parameters.
struct Parameters {
    skip_enum_variants: bool,
    path: Vec<String>,
    found: Vec<String>,
}

impl Parameters {
    fn new(skip_enum_variants: bool) -> Parameters {
        Parameters {
            skip_enum_variants,
            path: Vec::new(),
            found: Vec::new(),
        }
    }

    fn is_in_path(&self, container_type: &str) -> bool {
        !(self.skip_enum_variants && container_type.starts_with("Enum:"))
    }

    fn find(&mut self) {
        self.found.push(self.path.join("."));
    }
}

impl ModuleVisitor for Parameters {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        if self.is_in_path(container_type) {
            self.path.push(name.to_owned());
        }
    }

    fn exit_module(&mut self, _: &str, container_type: &str) {
        if self.is_in_path(container_type) {
            self.path.pop();
        }
    }

    fn visit_float<const D: usize>(&mut self, _: &Param<Tensor<D>>) {
        self.find();
    }

    fn visit_int<const D: usize>(&mut self, _: &Param<Tensor<D, Int>>) {
        self.find();
    }

    fn visit_bool<const D: usize>(&mut self, _: &Param<Tensor<D, Bool>>) {
        self.find();
    }
}
