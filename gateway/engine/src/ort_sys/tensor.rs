//! The runtime's own objects: names of memory, and tensors over memory that they do not own.
//!
//! It never touches the memory below a tensor. Invariant: each object is released once, after everything that uses it.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr::{self, NonNull},
};

use ort::sys::{ONNXTensorElementDataType as ElementType, OrtMemoryInfo, OrtSession, OrtStatusPtr, OrtValue};

use super::SysError;

/// Turns a status into a result and releases it.
pub(super) fn check(status: OrtStatusPtr) -> Result<(), SysError> {
    if status.0.is_null() {
        return Ok(());
    }
    // SAFETY: a status that is not null is alive until released.
    let message = unsafe { (ort::api().GetErrorMessage)(status.0) };
    // SAFETY: the message is a C string owned by the status, which is still alive; it is copied here.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    // SAFETY: released once, not used afterwards.
    unsafe { (ort::api().ReleaseStatus)(status.0) };
    Err(SysError(text))
}

/// A kind of memory, in the runtime's words.
pub(super) struct MemoryInfo(*mut OrtMemoryInfo);

impl MemoryInfo {
    /// Ordinary host memory.
    pub(super) fn host() -> Result<Self, SysError> {
        Self::named(c"Cpu", 0)
    }

    /// The memory of a device of this name.
    pub(super) fn named(name: &CStr, device: c_int) -> Result<Self, SysError> {
        let mut info = ptr::null_mut();
        // SAFETY: a C string, which is copied, and an out pointer that is valid for the call.
        let status = unsafe {
            (ort::api().CreateMemoryInfo)(
                name.as_ptr(),
                ort::sys::OrtAllocatorType::OrtDeviceAllocator,
                device,
                ort::sys::OrtMemType::OrtMemTypeDefault,
                &raw mut info,
            )
        };
        check(status)?;
        Ok(Self(info))
    }
}

impl Drop for MemoryInfo {
    fn drop(&mut self) {
        // SAFETY: made by `named`, released once. Tensors keep a copy, not this object.
        unsafe { (ort::api().ReleaseMemoryInfo)(self.0) };
    }
}

/// A tensor over memory that it does not own.
pub(super) struct View(NonNull<OrtValue>);

impl View {
    /// The caller keeps `bytes` bytes at `data` alive and in place for as long as the view.
    pub(super) fn new(
        memory: &MemoryInfo,
        data: *mut u8,
        bytes: usize,
        shape: &[i64],
        element: ElementType,
    ) -> Result<Self, SysError> {
        let mut value = ptr::null_mut();
        // SAFETY: `memory` is alive, `shape` is valid for its length, the out pointer is valid for the call. The data is
        // only recorded, not touched.
        let status = unsafe {
            (ort::api().CreateTensorWithDataAsOrtValue)(
                memory.0,
                data.cast::<c_void>(),
                bytes,
                shape.as_ptr(),
                shape.len(),
                element,
                &raw mut value,
            )
        };
        check(status)?;
        NonNull::new(value)
            .map(Self)
            .ok_or_else(|| SysError("no tensor was made".into()))
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: made by `new`, released once; the memory below it is not touched.
        unsafe { (ort::api().ReleaseValue)(self.0.as_ptr()) };
    }
}

/// Names of tensors, in the order in which they are handed over, and room for a run's arguments.
pub(super) struct Arguments {
    names: [Vec<*const c_char>; 2],
    _texts: Vec<CString>,
    inputs: Vec<*const OrtValue>,
    outputs: Vec<*mut OrtValue>,
}

impl Arguments {
    pub(super) fn new(inputs: &[String], outputs: &[String]) -> Self {
        let texts = |names: &[String]| -> Vec<CString> {
            let text = |name: &String| CString::new(name.as_str()).expect("names have no NUL");
            names.iter().map(text).collect()
        };
        let (mut all, outs) = (texts(inputs), texts(outputs));
        // The bytes of a `CString` stay where they are when it moves.
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect();
        let names = [pointers(&all), pointers(&outs)];
        all.extend(outs);
        Self {
            names,
            _texts: all,
            inputs: Vec::with_capacity(inputs.len()),
            outputs: Vec::with_capacity(outputs.len()),
        }
    }

    /// Runs `session` with these tensors.
    ///
    /// # Safety
    /// The session is alive, it and the memory below the tensors are not used by anybody else during the call, no slice of
    /// that memory exists, and tensors that share memory are ones that the graph may alias.
    pub(super) unsafe fn run<'a>(
        &mut self,
        session: *mut OrtSession,
        inputs: impl IntoIterator<Item = &'a View>,
        outputs: impl IntoIterator<Item = &'a View>,
    ) -> Result<(), SysError> {
        self.inputs.clear();
        self.inputs
            .extend(inputs.into_iter().map(|view| view.0.as_ptr().cast_const()));
        self.outputs.clear();
        self.outputs.extend(outputs.into_iter().map(|view| view.0.as_ptr()));
        let [input_names, output_names] = &self.names;
        assert_eq!(input_names.len(), self.inputs.len(), "each input has a name");
        assert_eq!(output_names.len(), self.outputs.len(), "each output has a name");
        // SAFETY: names and tensors are alive, both arrays have the given lengths; every output is given, so the runtime
        // writes into these tensors and replaces no pointer. The rest is the caller's promise.
        let status = unsafe {
            (ort::api().Run)(
                session,
                ptr::null(),
                input_names.as_ptr(),
                self.inputs.as_ptr(),
                self.inputs.len(),
                output_names.as_ptr(),
                self.outputs.len(),
                self.outputs.as_mut_ptr(),
            )
        };
        check(status)
    }
}
