//! The host name written into host_id leases (command-line.md 9.4).

use super::Config;
use sanlock_lease::limits::NAME_BYTES;
use sanlock_lease::name::Name;
use std::io;

impl Config {
    /// The node's name, and the name this host writes into its host_id leases: the one configured, else one that nobody else has,
    /// cut at 48 bytes.
    ///
    /// # Errors
    /// The node's name cannot be had, or has a NUL byte.
    pub fn host_name(&self) -> io::Result<(String, Name)> {
        let node = nix::unistd::gethostname()?.to_string_lossy().into_owned();
        if let Some(name) = self.our_host_name {
            return Ok((node, name));
        }
        let text = format!("{}.{node}", uuid::Uuid::new_v4());
        let cut = text.as_bytes().get(..NAME_BYTES).unwrap_or(text.as_bytes());
        let name = Name::new(cut).map_err(io::Error::other)?;
        Ok((node, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_name_is_new_at_every_start_unless_given() {
        let config = Config::default();
        let (node, first) = config.host_name().unwrap();
        let (_, second) = config.host_name().unwrap();
        assert_ne!(first, second);
        let text = first.to_string();
        assert!(text.len() <= NAME_BYTES && text.as_bytes()[36] == b'.', "{text}");
        assert!(node.starts_with(&text[37..]), "{text} of {node}");
        let given = Name::new(b"alpha").unwrap();
        let config = Config { our_host_name: Some(given), ..Config::default() };
        assert_eq!(config.host_name().unwrap().1, given);
    }
}
