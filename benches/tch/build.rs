//! Tests find libtorch where it was linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Not set where torch-sys was built without libtorch, for checks and documentation alone.
    if let Ok(libtorch) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{libtorch}");
    }
}
