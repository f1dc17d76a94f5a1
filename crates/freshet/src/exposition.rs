//! The figures of several databases as OpenMetrics text, each with the labels `database` and `protocol`.

use std::borrow::Cow;
use std::fmt;

use freshet_proxy::{Family, PinFigures, Shared, Timed};
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Collects the figures of all databases, since the encoder needs all figures of a name together.
#[derive(Default)]
pub(crate) struct Writer {
    /// The database whose figures are being collected. None: those of the process.
    of: Option<Of>,
    pub(crate) metrics: Vec<Metric>,
}

/// The labels of a database.
#[derive(Clone)]
struct Of {
    database: String,
    protocol: &'static str,
}

/// The figures of one name.
pub(crate) struct Metric {
    name: String,
    pub(crate) help: String,
    kind: MetricType,
    pub(crate) samples: Vec<Sample>,
}

/// One figure.
pub(crate) struct Sample {
    /// None: the figure is of the process.
    of: Option<Of>,
    /// A further label.
    label: Option<Label>,
    pub(crate) value: Figure,
}

impl Metric {
    /// The name of its samples.
    pub(crate) fn sample_name(&self) -> String {
        if self.kind_name() == "counter" { format!("{}_total", self.name) } else { self.name.clone() }
    }

    /// `counter`, `gauge` or `histogram`.
    pub(crate) fn kind_name(&self) -> &str {
        self.kind.as_str()
    }
}

impl Sample {
    /// Names and values.
    pub(crate) fn labels(&self) -> Vec<(&str, &str)> {
        let of = self.of.iter().flat_map(|of| [("database", of.database.as_str()), ("protocol", of.protocol)]);
        of.chain(self.label.iter().map(|(name, value)| (*name, &**value))).collect()
    }
}

/// Name and value of a label.
type Label = (&'static str, Cow<'static, str>);

/// A value of a metric.
pub(crate) enum Figure {
    Count(u64),
    Seconds(f64),
    Gauge(f64),
    Histogram(Box<Timed>),
}

impl From<u64> for Figure {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Figure {
    fn from(seconds: f64) -> Self {
        Self::Seconds(seconds)
    }
}

impl Figure {
    fn metric_type(&self) -> MetricType {
        match self {
            Self::Count(_) | Self::Seconds(_) => MetricType::Counter,
            Self::Gauge(_) => MetricType::Gauge,
            Self::Histogram(_) => MetricType::Histogram,
        }
    }

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => encoder.encode_counter::<NoLabelSet, _, u64>(count, None),
            Self::Seconds(seconds) => encoder.encode_counter::<NoLabelSet, _, u64>(seconds, None),
            Self::Gauge(value) => encoder.encode_gauge(value),
            Self::Histogram(timed) => {
                let buckets: Vec<(f64, u64)> = timed.histogram.in_seconds().collect();
                encoder.encode_histogram::<NoLabelSet>(timed.seconds, timed.histogram.count(), &buckets, None)
            }
        }
    }
}

impl Writer {
    /// Begins the figures of a database, or of the process.
    pub(crate) fn begin(&mut self, of: Option<(&str, &Family)>) {
        self.of = of.map(|(database, family)| Of { database: database.to_owned(), protocol: family.protocol() });
    }

    /// The encoder adds `_total` to the name.
    pub(crate) fn counter(&mut self, name: &str, help: &str, value: impl Into<Figure>) -> fmt::Result {
        self.add(name, help, None, value.into())
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.add(name, help, None, Figure::Gauge(value))
    }

    /// Without a value the metric is described all the same.
    pub(crate) fn gauge_if_known(&mut self, name: &str, help: &str, value: Option<u64>) -> fmt::Result {
        match value {
            Some(value) => self.gauge(name, help, value as f64),
            None => self.metric(name, help, MetricType::Gauge).map(drop),
        }
    }

    pub(crate) fn histogram(&mut self, name: &str, help: &str, timed: Timed) -> fmt::Result {
        self.add(name, help, None, Figure::Histogram(Box::new(timed)))
    }

    pub(crate) fn passed(&mut self, shared: &Shared) -> fmt::Result {
        let by_reason = shared.metrics.passed_by_reason().into_iter().map(|passed| (passed.reason, passed.count));
        self.counters(("freshet_passed", "Statements passed, by reason"), "reason", by_reason)
    }

    /// What keeps sessions on the server connections that they share.
    pub(crate) fn pins(&mut self, pins: &[PinFigures]) -> fmt::Result {
        let help = "How often sessions have kept a server connection that they share, by what lives there";
        self.counters(("freshet_pins", help), "reason", pins.iter().map(|pin| (pin.reason, pin.count)))?;
        let help = "Time that sessions have kept server connections that they share, by what lives there";
        self.counters(("freshet_pin_seconds", help), "reason", pins.iter().map(|pin| (pin.reason, pin.seconds)))?;
        let help = "Sessions that keep a server connection that they share now, by what lives there";
        self.gauges(("freshet_pinned_sessions", help), "reason", pins.iter().map(|pin| (pin.reason, pin.sessions)))
    }

    pub(crate) fn rule_matches(&mut self, shared: &Shared) -> fmt::Result {
        let matches = shared.rule_matches().into_iter().map(|rule| (rule.rule, rule.matches));
        let help = "Statements that a rule has decided, apart from hits: by the rule's number in the file, or its digest if SQL has created it";
        self.counters(("freshet_rule_matches", help), "rule", matches)?;
        let help = "Statements whose hint in a comment was wrong, and was ignored";
        self.counter("freshet_hints_ignored", help, shared.hints_ignored())
    }

    /// One counter for each value of a label.
    pub(crate) fn counters(
        &mut self,
        (name, help): (&str, &str),
        label: &'static str,
        counts: impl Iterator<Item = (impl Into<Cow<'static, str>>, impl Into<Figure>)>,
    ) -> fmt::Result {
        // The metric is described even if it has no value yet.
        self.metric(name, help, MetricType::Counter)?;
        for (value, count) in counts {
            self.add(name, help, Some((label, value.into())), count.into())?;
        }
        Ok(())
    }

    /// One gauge for each value of a label.
    pub(crate) fn gauges(
        &mut self,
        (name, help): (&str, &str),
        label: &'static str,
        figures: impl Iterator<Item = (impl Into<Cow<'static, str>>, u64)>,
    ) -> fmt::Result {
        self.metric(name, help, MetricType::Gauge)?;
        for (value, figure) in figures {
            self.add(name, help, Some((label, value.into())), Figure::Gauge(figure as f64))?;
        }
        Ok(())
    }

    fn add(&mut self, name: &str, help: &str, label: Option<Label>, value: Figure) -> fmt::Result {
        let sample = Sample { of: self.of.clone(), label, value };
        self.metric(name, help, sample.value.metric_type())?.samples.push(sample);
        Ok(())
    }

    fn metric(&mut self, name: &str, help: &str, metric_type: MetricType) -> Result<&mut Metric, fmt::Error> {
        let known = self.metrics.iter().position(|metric| metric.name == name);
        let at = known.unwrap_or_else(|| {
            self.metrics.push(Metric {
                name: name.to_owned(),
                help: help.to_owned(),
                kind: metric_type,
                samples: Vec::new(),
            });
            self.metrics.len() - 1
        });
        let metric = self.metrics.get_mut(at).filter(|metric| metric.kind.as_str() == metric_type.as_str());
        metric.ok_or(fmt::Error)
    }

    pub(crate) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for Metric { name, help, kind, samples } in &self.metrics {
            let mut metric = encoder.encode_descriptor(name, help, None, *kind)?;
            // A figure of the process has no labels, unless it has one of its own.
            if let [sample] = samples.as_slice()
                && sample.labels().is_empty()
            {
                sample.value.encode(metric)?;
                continue;
            }
            for sample in samples {
                sample.value.encode(metric.encode_family(&sample.labels())?)?;
            }
        }
        Ok(())
    }
}
