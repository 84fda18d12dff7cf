//! The text that Prometheus reads: its own format, version 0.0.4, and OpenMetrics 1.0.
//!
//! Written by hand: the metrics are made anew for every scrape from what the daemon says, so a registry of counters that live in this
//! process would only be in the way, and both formats are a page each.

use std::fmt::{Display, Write as _};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus' own.
    Text,
    /// OpenMetrics.
    OpenMetrics,
}

impl Format {
    /// What a scraper that sends this `Accept` can read.
    pub(crate) fn accepted(accept: &str) -> Self {
        let open =
            |range: &str| range.split(';').next().unwrap_or("").trim() == "application/openmetrics-text";
        if accept.split(',').any(open) { Self::OpenMetrics } else { Self::Text }
    }

    /// Its media type.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// What a family of samples is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only goes up. Its name ends in `_total`.
    Counter,
    /// How many took how long.
    Histogram,
}

/// The text so far.
#[derive(Debug)]
pub(crate) struct Page {
    format: Format,
    out: String,
    name: &'static str,
}

impl Page {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, out: String::new(), name: "" }
    }

    /// Begins a family. All its samples follow before the next one begins.
    pub(crate) fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        self.name = name;
        let kind_word = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
        };
        let family = match (self.format, kind) {
            (Format::OpenMetrics, Kind::Counter) => name.strip_suffix("_total").unwrap_or(name),
            _ => name,
        };
        self.line(format_args!("# HELP {family} {help}\n# TYPE {family} {kind_word}\n"));
    }

    /// A sample of the family.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.put("", labels, None, value);
    }

    /// The samples of one histogram: `counts` has those up to each of `bounds`, without those of the bounds below, and those above.
    pub(crate) fn histogram(&mut self, labels: &[(&str, &str)], bounds: &[f64], counts: &[u64], sum: f64) {
        let mut all = 0_u64;
        for (at, count) in counts.iter().enumerate() {
            all = all.saturating_add(*count);
            let bound = bounds.get(at).map_or_else(|| "+Inf".to_owned(), |bound| canonical(*bound));
            self.put("_bucket", labels, Some(&bound), all);
        }
        self.put("_sum", labels, None, sum);
        self.put("_count", labels, None, all);
    }

    fn put(&mut self, suffix: &str, labels: &[(&str, &str)], le: Option<&str>, value: impl Display) {
        let mut text = String::new();
        for (name, value) in labels.iter().copied().chain(le.map(|le| ("le", le))) {
            let separator = if text.is_empty() { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = write!(text, "{separator}{name}=\"{}\"", escaped(value));
        }
        let braces = if text.is_empty() { String::new() } else { format!("{{{text}}}") };
        let name = self.name;
        self.line(format_args!("{name}{suffix}{braces} {value}\n"));
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(text);
    }

    /// The whole text.
    pub(crate) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }
}

/// A bound as OpenMetrics wants it: with a point.
fn canonical(bound: f64) -> String {
    let text = bound.to_string();
    if text.contains('.') { text } else { text + ".0" }
}

/// A label's value between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Bytes that may be anything as text: what is not printable ASCII is `\xNN`, so that different names stay different.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if (b' '..=b'~').contains(&byte) && byte != b'\\' {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(format: Format) -> String {
        let mut page = Page::new(format);
        page.family("a_total", Kind::Counter, "Help.");
        page.sample(&[], 3);
        page.family("b_seconds", Kind::Histogram, "Help.");
        page.histogram(&[("l", "x\"\\\n")], &[0.5, 1.0], &[1, 0, 2], 4.5);
        page.finish()
    }

    #[test]
    fn both_formats() {
        let histogram = "# HELP b_seconds Help.\n# TYPE b_seconds histogram\n\
                         b_seconds_bucket{l=\"x\\\"\\\\\\n\",le=\"0.5\"} 1\nb_seconds_bucket{l=\"x\\\"\\\\\\n\",le=\"1.0\"} 1\n\
                         b_seconds_bucket{l=\"x\\\"\\\\\\n\",le=\"+Inf\"} 3\nb_seconds_sum{l=\"x\\\"\\\\\\n\"} 4.5\n\
                         b_seconds_count{l=\"x\\\"\\\\\\n\"} 3\n";
        assert_eq!(
            page(Format::Text),
            format!("# HELP a_total Help.\n# TYPE a_total counter\na_total 3\n{histogram}")
        );
        assert_eq!(
            page(Format::OpenMetrics),
            format!("# HELP a Help.\n# TYPE a counter\na_total 3\n{histogram}# EOF\n")
        );
    }

    #[test]
    fn names_stay_different() {
        assert_eq!(printable(b"LS 1"), "LS 1");
        assert_eq!(printable(b"\xff\\\n"), "\\xff\\x5c\\x0a");
    }

    #[test]
    fn the_scraper_chooses() {
        let real = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;q=0.5,*/*;q=0.1";
        assert_eq!(Format::accepted(real), Format::OpenMetrics);
        for other in ["", "*/*", "text/plain", "application/openmetrics-textx"] {
            assert_eq!(Format::accepted(other), Format::Text, "{other}");
        }
    }
}
