//! How far work has come that takes minutes: a bar on standard error, if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// What the work calls with `(done, total)`, in bytes.
pub(crate) type Progress = Box<dyn Fn(u64, u64) + Send + Sync>;

/// Does the work, and shows how far it is until it returns.
pub(crate) fn shown<T>(work: impl FnOnce(Progress) -> T) -> T {
    let bar = ProgressBar::new(0).with_style(style());
    let shown = bar.clone();
    let result = work(Box::new(move |done, total| {
        shown.set_length(total);
        shown.set_position(done);
    }));
    bar.finish_and_clear();
    result
}

fn style() -> ProgressStyle {
    let template = "{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
