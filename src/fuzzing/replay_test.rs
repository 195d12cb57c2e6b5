//! Every input of `fuzz/corpus` (what reaches the code) and of `fuzz/regressions` (what broke it once), again.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

/// Hands a target all inputs that are kept for it.
fn replay(name: &str, target: fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let corpus = inputs(&fuzz.join("corpus").join(name));
    assert!(!corpus.is_empty(), "the corpus of {name} is missing: fuzz/corpus/{name}");
    let regressions = inputs(&fuzz.join("regressions").join(name));
    println!("{name}: {} inputs of the corpus, {} regressions", corpus.len(), regressions.len());
    for path in regressions.iter().chain(&corpus) {
        let _named = Named(path);
        target(&fs::read(path).unwrap());
    }
}

/// The files of a folder; none where there is no folder.
fn inputs(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Names the input that a target panics at.
struct Named<'a>(&'a Path);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("with the input {}", self.0.display());
        }
    }
}

macro_rules! replayed {
    ($($target:ident)*) => {
        $(
            #[test]
            fn $target() {
                replay(stringify!($target), super::$target);
            }
        )*

        const TARGETS: &[&str] = &[$(stringify!($target)),*];
    };
}

replayed! { decode_v3_1 decode_v3_1_1 decode_v5 session topic_match config websocket proxy replica peer_frame stored_record }

/// A target that cargo-fuzz knows and that is not replayed would rot, and so would inputs of a target that is gone.
#[test]
fn all_targets_and_all_inputs_are_replayed() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let stem = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let mut replayed: Vec<String> = TARGETS.iter().map(|&name| name.to_owned()).collect();
    replayed.sort();
    let of_cargo_fuzz: Vec<String> = inputs(&fuzz.join("fuzz_targets")).iter().map(stem).collect();
    assert_eq!(of_cargo_fuzz, replayed);
    for kind in ["corpus", "regressions"] {
        for folder in inputs(&fuzz.join(kind)) {
            assert!(replayed.contains(&stem(&folder)), "{}", folder.display());
        }
    }
}
