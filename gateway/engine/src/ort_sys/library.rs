//! Shared libraries: ONNX Runtime itself, and those that its CUDA provider needs.
//!
//! It never looks for them. Invariant: a [`Library`] stays loaded until the process ends.

use std::{
    ffi::{CStr, CString, c_void},
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr::NonNull,
};

use ort::sys::OrtApiBase;

use super::SysError;

/// A library that was loaded for good.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Library(NonNull<c_void>);

// SAFETY: the loader's handle may be used by any thread, and is never closed.
unsafe impl Send for Library {}
// SAFETY: as above; looking up a symbol changes nothing.
unsafe impl Sync for Library {}

impl Library {
    /// Loads the library of this path; a bare name is looked for as the system's loader does (`LD_LIBRARY_PATH`, its
    /// cache). Others that need a library of the same name get this one from then on.
    ///
    /// # Errors
    /// The loader's words.
    pub(crate) fn load(path: &Path) -> Result<Self, SysError> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| SysError("a path with NUL".into()))?;
        // SAFETY: a C string. Loading runs the library's initialisers: it is the operator's choice to trust that file.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Self).ok_or_else(|| SysError(loader_message()))
    }

    /// The address of a symbol.
    ///
    /// # Errors
    /// The library does not export it.
    pub(super) fn symbol(self, name: &CStr) -> Result<NonNull<c_void>, SysError> {
        // SAFETY: a live handle and a C string.
        let symbol = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        NonNull::new(symbol).ok_or_else(|| SysError(format!("it does not export {}", name.to_string_lossy())))
    }
}

/// Loads the ONNX Runtime at `path` and asks its version, such as `1.31.1`. `ort` has no call for that.
///
/// # Errors
/// The loader's words, or that it is no ONNX Runtime.
pub(crate) fn library_version(path: &Path) -> Result<String, SysError> {
    let symbol = Library::load(path)?.symbol(c"OrtGetApiBase")?;
    // SAFETY: the symbol of this name has this type in every ONNX Runtime since 1.0.
    let base =
        unsafe { std::mem::transmute::<*mut c_void, extern "system" fn() -> *const OrtApiBase>(symbol.as_ptr()) };
    let base = NonNull::new(base().cast_mut()).ok_or_else(|| SysError("it offers no interface".into()))?;
    // SAFETY: the runtime's base table is static and begins with these two functions.
    let table = unsafe { base.as_ref() };
    // SAFETY: takes nothing, returns a static C string.
    let version = unsafe { (table.GetVersionString)() };
    // SAFETY: see above; copied here.
    Ok(unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned())
}

fn loader_message() -> String {
    // SAFETY: called right after a failed `dlopen` in this thread; the result is a C string or null.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "the loader gives no reason".into();
    }
    // SAFETY: not null, so a C string that lives until this thread's next call to the loader; copied here.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}
