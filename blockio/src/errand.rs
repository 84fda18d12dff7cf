//! A call that may block, for whoever can be spared to make it.

use std::fmt;

/// One operation or open, to be carried out on the calling thread. Comes from [`crate::Engine::errand`] and
/// [`crate::Engine::last_resort`], [`crate::Disk::open_on_errand`] and `Disk::close_on_errand`; whoever gets one has to [`Errand::run`] it,
/// soon: until then nothing of it happens, and what waits for it waits.
#[must_use = "what it is for waits until it is run"]
pub struct Errand(Box<dyn FnOnce() + Send>);

impl Errand {
    /// A call that may block.
    pub fn new(call: impl FnOnce() + Send + 'static) -> Self {
        Self(Box::new(call))
    }

    /// Makes the call. **May block** for as long as the storage is silent.
    pub fn run(self) {
        (self.0)();
    }
}

impl fmt::Debug for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Errand")
    }
}
