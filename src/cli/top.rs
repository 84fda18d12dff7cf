//! What `sanlock top` takes. The program behind it, `sanlock-top`, reads the same options with this file.

use clap::{Parser, ValueEnum};

/// `sanlock top`: lockspaces, hosts, leases and renewals of this host on the terminal, kept up to date.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "sanlock top", disable_version_flag = true)]
pub(crate) struct TopArgs {
    /// Lockspace to begin with; else the first one
    #[arg(value_name = "LOCKSPACE")]
    pub(crate) lockspace: Option<String>,
    /// How often the daemon is asked
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) interval: u32,
    /// Order of the lockspaces: by name, least time left first, or slowest last renewal first
    #[arg(long, value_name = "KEY", value_enum, default_value_t = Sort::Name)]
    pub(crate) sort: Sort,
    /// Print everything once, as text, and end
    #[arg(long)]
    pub(crate) once: bool,
}

/// Orders of the lockspaces. (Doc comments of the variants would make a long list of the help.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    Name,
    // The one that has the least time left first.
    Left,
    // The one with the slowest last renewal first.
    Latency,
}

impl Sort {
    /// As it is given.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Left => "left",
            Self::Latency => "latency",
        }
    }
}
