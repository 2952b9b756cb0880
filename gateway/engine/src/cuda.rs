//! Finds the libraries that ONNX Runtime's CUDA provider needs, loads them in the order of their dependencies, and opens
//! the device.
//!
//! They come from NVIDIA, by its wheels or its toolkit, and are never part of zerohop. Loaded first, each by its full path,
//! they serve the provider as well, which asks for them by name: so nobody has to set `LD_LIBRARY_PATH`. Nothing is searched
//! for but known places, and a folder that was named is the only one that is looked into. Invariant: a device that was opened
//! uses the same CUDA runtime library as the provider.

use std::path::{Path, PathBuf};

use crate::{
    ort_sys::{Cuda, Library},
    runtime::Runtime,
};

/// The provider, beside the ONNX Runtime library.
pub(crate) const PROVIDER: &str = "libonnxruntime_providers_cuda.so";

/// The CUDA runtime library, which comes first.
const CUDART: &str = "libcudart.so.13";

/// What the provider of ONNX Runtime 1.31 for CUDA 13 is linked with, in the order of dependencies.
const NEEDED: [&str; 4] = [CUDART, "libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10"];

/// What some of its operators load when they are first used; fine if missing, until then.
const OPTIONAL: [&str; 8] = [
    "libnvJitLink.so.13",
    "libnvrtc.so.13",
    "libcufft.so.12",
    "libcudnn.so.9",
    "libcudnn_graph.so.9",
    "libcudnn_ops.so.9",
    "libcudnn_adv.so.9",
    "libcudnn_cnn.so.9",
];

/// Why there is no device. One line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CudaError {
    /// An ONNX Runtime for the CPU.
    #[error("no {PROVIDER} beside {runtime}")]
    NoProvider { runtime: String },
    /// A library is in none of the places.
    #[error("no usable {name} ({reason}); looked in {looked}")]
    Missing {
        name: &'static str,
        reason: String,
        looked: String,
    },
    /// The libraries are there, the device is not.
    #[error("no device: {reason}")]
    NoDevice { reason: String },
}

impl CudaError {
    /// What to do about it.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::NoProvider { .. } => {
                "point `engine.onnxruntime` to the library of the package onnxruntime-gpu (`cargo xtask setup --cuda DIR`)"
            }
            Self::Missing { .. } => {
                "set `engine.cuda` to the folder that has it (`cargo xtask setup --cuda DIR` fetches NVIDIA's packages)"
            }
            Self::NoDevice { .. } => "install NVIDIA's driver, see `nvidia-smi`, and check CUDA_VISIBLE_DEVICES",
        }
    }
}

/// Loads the libraries and opens the first device.
pub(crate) fn open(runtime: &Runtime) -> Result<Cuda, CudaError> {
    if !runtime.path().with_file_name(PROVIDER).is_file() {
        return Err(CudaError::NoProvider {
            runtime: runtime.path().display().to_string(),
        });
    }
    let folders = folders(runtime.cuda_folder(), runtime.path());
    // A named folder is the only place; else the system's loader knows more places (`LD_LIBRARY_PATH`, its cache).
    let by_name = runtime.cuda_folder().is_none();
    let mut runtime_library = None;
    for name in NEEDED {
        let library = load(name, &folders, by_name)?;
        runtime_library.get_or_insert(library);
    }
    for name in OPTIONAL {
        // Nobody may ever need it.
        let _ = load(name, &folders, by_name);
    }
    let no_device = |reason: String| CudaError::NoDevice { reason };
    let library = runtime_library.ok_or_else(|| no_device("no CUDA runtime library".into()))?;
    Cuda::open(library).map_err(|error| no_device(error.to_string()))
}

/// Loads the first library of this name that can be loaded.
fn load(name: &'static str, folders: &[PathBuf], by_name: bool) -> Result<Library, CudaError> {
    let paths = folders
        .iter()
        .map(|folder| folder.join(name))
        .filter(|path| path.is_file());
    let paths = by_name.then(|| PathBuf::from(name)).into_iter().chain(paths);
    let mut reason = "no such file".to_owned();
    for path in paths {
        match Library::load(&path) {
            Ok(library) => return Ok(library),
            Err(error) => reason = error.to_string().split_whitespace().collect::<Vec<_>>().join(" "),
        }
    }
    let mut looked: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    if by_name {
        looked.insert(0, "LD_LIBRARY_PATH".into());
    }
    Err(CudaError::Missing {
        name,
        reason,
        looked: looked.join(", "),
    })
}

/// The folders that may have libraries: of the one that is configured, or of the usual places.
fn folders(configured: Option<&Path>, runtime: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    match configured {
        Some(folder) => {
            folders.extend(["", "lib", "lib64"].map(|part| folder.join(part)));
            folders.extend(wheels(folder));
            folders.extend(wheels(&folder.join("nvidia")));
        }
        None => {
            let beside = runtime.parent().unwrap_or(Path::new("."));
            folders.push(beside.to_path_buf());
            folders.extend(wheels(&beside.join("nvidia")));
            // The library lies in `site-packages/onnxruntime/capi`, the others in `site-packages/nvidia`.
            if let Some(packages) = beside.parent().and_then(Path::parent) {
                folders.extend(wheels(&packages.join("nvidia")));
            }
            folders.extend(["/usr/local/cuda-13/lib64", "/usr/local/cuda/lib64"].map(PathBuf::from));
        }
    }
    folders.retain(|folder| folder.is_dir());
    folders
}

/// Where NVIDIA's wheels keep libraries: in `lib` of the folder of each part, in the order of names.
fn wheels(nvidia: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(nvidia).into_iter().flatten();
    let mut folders: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path().join("lib")))
        .collect();
    folders.sort();
    folders
}

#[cfg(test)]
#[path = "cuda_tests.rs"]
mod tests;
