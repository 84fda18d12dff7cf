//! A pretended driver for tests; one per test thread.

use super::{Device, Handle, Kernel, Opened};
use crate::sysfs::Described;
use sanlock_sys::watchdog::Support;
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

/// The driver: how it behaves, and what was done to it.
#[derive(Debug, Clone)]
pub(crate) struct Driver {
    pub(crate) support: Support,
    pub(crate) timeout: u32,
    /// What becomes of a timeout that is set, or an errno.
    pub(crate) set_timeout: fn(u32) -> Result<u32, i32>,
    /// errno of calls that fail, 0 for none.
    pub(crate) open_error: i32,
    pub(crate) keepalive_error: i32,
    pub(crate) magic_error: i32,
    /// Seconds before the reset; `None`: it does not tell.
    pub(crate) pretimeout: Option<u32>,
    /// What becomes of a pretimeout that is set, or an errno.
    pub(crate) set_pretimeout: fn(u32) -> Result<u32, i32>,
    /// What sysfs says.
    pub(crate) no_way_out: Option<bool>,
    /// What sysfs says once it has been opened, and what before.
    pub(crate) runs: Option<bool>,
    pub(crate) ran: Option<bool>,
    /// Whether it has ever been opened.
    opened: bool,
    pub(crate) calls: Vec<String>,
    /// The next close stops it, also that of a dying process. The kernel notes a `V` before it pings, so one that failed counts too.
    pub(crate) magic: bool,
    /// errno of a write that takes a `V` back.
    pub(crate) take_back_error: i32,
}

thread_local! {
    static DRIVER: RefCell<Driver> = RefCell::new(Driver {
        support: Support::complete("pretended"),
        timeout: 60,
        set_timeout: Ok,
        open_error: 0,
        keepalive_error: 0,
        magic_error: 0,
        pretimeout: Some(0),
        set_pretimeout: Ok,
        no_way_out: None,
        runs: None,
        ran: None,
        opened: false,
        calls: Vec::new(),
        magic: false,
        take_back_error: 0,
    });
}

/// Looks at, or changes, this thread's driver.
pub(crate) fn with<T>(look: impl FnOnce(&mut Driver) -> T) -> T {
    DRIVER.with_borrow_mut(look)
}

/// What was done since the last time.
pub(crate) fn calls() -> Vec<String> {
    with(|driver| std::mem::take(&mut driver.calls))
}

/// A device with this thread's driver.
pub(crate) fn device(no_way_out: Option<bool>) -> Device {
    let kernel = Kernel {
        open,
        no_way_out: |_| with(|driver| driver.no_way_out),
        runs: |_| with(|driver| if driver.opened { driver.runs } else { driver.ran }),
        holders: |_| Vec::new(),
    };
    Device::new(PathBuf::from("/dev/pretended"), Described { identity: None, no_way_out }, kernel)
}

/// Opens it.
pub(crate) fn open(_path: &Path) -> io::Result<Opened> {
    call("open".into(), |driver| driver.open_error)?;
    with(|driver| driver.opened = true);
    Ok(Box::new(File))
}

fn call(text: String, error: impl FnOnce(&Driver) -> i32) -> io::Result<()> {
    with(|driver| {
        driver.calls.push(text);
        match error(driver) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    })
}

struct File;

impl Handle for File {
    fn support(&self) -> io::Result<Support> {
        Ok(with(|driver| driver.support.clone()))
    }

    fn timeout(&self) -> io::Result<u32> {
        Ok(with(|driver| driver.timeout))
    }

    fn set_timeout(&self, seconds: u32) -> io::Result<u32> {
        call(format!("set {seconds}"), |_| 0)?;
        let result = with(|driver| (driver.set_timeout)(seconds));
        let seconds = result.map_err(io::Error::from_raw_os_error)?;
        with(|driver| driver.timeout = seconds);
        Ok(seconds)
    }

    fn keepalive(&self) -> io::Result<()> {
        call("ping".into(), |driver| driver.keepalive_error)
    }

    fn pretimeout(&self) -> io::Result<u32> {
        with(|driver| driver.pretimeout).ok_or_else(|| io::Error::from_raw_os_error(nix::libc::ENOTTY))
    }

    fn set_pretimeout(&self, seconds: u32) -> io::Result<u32> {
        call(format!("warn {seconds}"), |_| 0)?;
        let result = with(|driver| (driver.set_pretimeout)(seconds));
        let seconds = result.map_err(io::Error::from_raw_os_error)?;
        with(|driver| driver.pretimeout = driver.pretimeout.map(|_| seconds));
        Ok(seconds)
    }

    fn magic(&mut self) -> io::Result<()> {
        with(|driver| driver.magic = true);
        call("V".into(), |driver| driver.magic_error)
    }

    fn take_back(&mut self) -> io::Result<()> {
        call("no V".into(), |driver| driver.take_back_error)?;
        with(|driver| driver.magic = false);
        Ok(())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        with(|driver| {
            driver.calls.push("close".into());
            driver.magic = false;
        });
    }
}
