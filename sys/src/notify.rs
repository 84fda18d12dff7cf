//! Telling the service manager how far the daemon is, as sd_notify(3) does: lines in one datagram to the socket that the environment
//! names. systemd asks for it in units with `Type=notify`; without the variable nothing happens.
//!
//! Such a unit wants the process that it has started to be the daemon. One that goes into the background and says so in time is the
//! child of a process that still lives: systemd then does not notice when it ends, and takes it for ended when it is only asked to.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::time::Duration;

/// The variable with the socket's path, or its abstract name after an `@`. What the daemon starts must not inherit it: a message
/// may count as the daemon's own.
pub const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
/// The variable with the pid of the process that systemd has started, which others inherit.
const STARTED_VARIABLE: &str = "SYSTEMD_EXEC_PID";
/// How long a manager that does not read may hold up the daemon.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether a manager has started this very process and waits to be told, so that it must stay in the foreground.
#[must_use]
pub fn manager_waits() -> bool {
    let named = env::var_os(SOCKET_VARIABLE).is_some_and(|name| !name.is_empty());
    named && env::var(STARTED_VARIABLE).is_ok_and(|pid| pid == process::id().to_string())
}

/// The daemon serves.
///
/// # Errors
///
/// The message was not delivered: there is no such socket, it may not be used, or nobody has read for a second.
pub fn ready() -> io::Result<()> {
    match env::var_os(SOCKET_VARIABLE) {
        Some(name) if !name.is_empty() => send(&name, "READY=1\n"),
        _ => Ok(()),
    }
}

fn send(name: &OsStr, lines: &str) -> io::Result<()> {
    let address = match name.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.send_to_addr(lines.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 100];
        let len = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    }

    #[test]
    fn a_message_reaches_a_socket_with_a_path_or_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), "READY=1\n").unwrap();
        assert_eq!(received(&by_path), "READY=1\n");

        let name = format!("sanlock-notify-{}", process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let by_name = UnixDatagram::bind_addr(&abstract_name).unwrap();
        send(OsStr::new(&format!("@{name}")), "READY=1\n").unwrap();
        assert_eq!(received(&by_name), "READY=1\n");
    }

    #[test]
    fn nobody_there_is_an_error_and_nobody_reading_delays_little() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        assert_eq!(send(path.as_os_str(), "X=1").unwrap_err().kind(), io::ErrorKind::NotFound);
        let socket = UnixDatagram::bind(&path).unwrap();
        let error = (0..100_000).find_map(|_| send(path.as_os_str(), "X=1").err()).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(socket);
    }
}
