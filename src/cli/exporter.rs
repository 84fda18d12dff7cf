//! The options of `sanlock exporter`, which the original does not have.

use clap::Parser;
use clap::builder::{OsStringValueParser, PathBufValueParser, TypedValueParser};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where it listens unless told otherwise.
pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:9778";

/// `sanlock exporter`: shows the daemon's state to Prometheus; reads the daemon's socket, changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "sanlock exporter", disable_version_flag = true)]
pub(crate) struct ExporterArgs {
    /// Address for HTTP, an IP address with a port or unix:PATH; may be repeated [default: 127.0.0.1:9778, none with --textfile]
    #[arg(long, value_name = "ADDR:PORT", value_parser = OsStringValueParser::new().try_map(Listen::parse))]
    pub(crate) listen: Vec<Listen>,
    /// Write the metrics to this file over and over, for node_exporter; its name ends in .prom
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(prom_file))]
    pub(crate) textfile: Option<PathBuf>,
    /// How often the file is written
    #[arg(long, value_name = "SECONDS", default_value_t = 15, requires = "textfile", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) interval: u32,
    /// How long the daemon may take for all its answers to one scrape
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(crate) timeout: u32,
    /// Print the metrics once and end
    #[arg(long, conflicts_with_all = ["listen", "textfile"])]
    pub(crate) once: bool,
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listen {
    /// On TCP.
    Tcp(SocketAddr),
    /// On a unix socket.
    Unix(PathBuf),
}

impl Listen {
    fn parse(text: OsString) -> Result<Self, String> {
        let shown = text.to_string_lossy().into_owned();
        if let Some(path) = text.to_str().and_then(|text| text.strip_prefix("unix:")) {
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                Err(format!("{shown}: after unix: comes the absolute path of a socket"))
            };
        }
        shown.parse().map(Self::Tcp).map_err(|_| {
            format!("{shown}: neither an IP address with a port ({DEFAULT_LISTEN}, [::1]:9778) nor unix:PATH")
        })
    }
}

/// node_exporter reads no other files.
fn prom_file(path: PathBuf) -> Result<PathBuf, String> {
    if path.extension().is_some_and(|extension| extension == "prom") {
        Ok(path)
    } else {
        Err(format!("{}: the name of the file must end in .prom, others are not read", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<ExporterArgs, clap::Error> {
        ExporterArgs::try_parse_from([&["sanlock exporter"], args].concat())
    }

    #[test]
    fn addresses_are_numbers_or_sockets() {
        let listen = |text: &str| parse(&["--listen", text]).map(|args| args.listen);
        assert_eq!(listen("[::1]:80").unwrap(), [Listen::Tcp("[::1]:80".parse().unwrap())]);
        assert_eq!(listen("unix:/run/x").unwrap(), [Listen::Unix("/run/x".into())]);
        for wrong in ["localhost:80", "127.0.0.1", ":80", "unix:", "unix:x", "", "1.2.3.4:65536"] {
            assert!(listen(wrong).is_err(), "{wrong}");
        }
        assert!(matches!(Listen::parse(DEFAULT_LISTEN.into()), Ok(Listen::Tcp(_))));
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        assert!(parse(&["--textfile", "/x/a.prom", "--interval", "5"]).is_ok());
        for wrong in [
            &["--textfile", "/x/a.txt"][..],
            &["--interval", "5"],
            &["--once", "--textfile", "a.prom"],
            &["--once", "--listen", "127.0.0.1:1"],
            &["--timeout", "0"],
            &["word"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
