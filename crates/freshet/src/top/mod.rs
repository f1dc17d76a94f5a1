//! `freshet top`: the activity of a running Freshet in a terminal. It reads `/api/status`, as the dashboard does.

mod fetch;
mod screen;
mod view;
mod words;

use std::time::{Duration, Instant};

use anyhow::Result;
use freshet_units::Span;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use fetch::read;
use view::View;

use crate::endpoint::{Endpoint, EndpointArgs};

/// The longest time until a key has an effect.
const KEYS_EVERY: Duration = Duration::from_millis(100);

/// Options of `freshet top`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    endpoint: EndpointArgs,
    /// How often the figures are read
    #[arg(long, default_value = "1s")]
    every: Span,
    /// Show one database of several; all together if not given
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// Print the figures once, as plain text, and end
    #[arg(long)]
    once: bool,
}

/// Shows the figures until q is pressed.
pub(crate) async fn run(args: TopArgs) -> Result<()> {
    let source = Endpoint::new(&args.endpoint)?;
    let status = read(&source, args.database.as_deref()).await?;
    if args.once {
        print!("{}", screen::plain(&View::of(status)));
        return Ok(());
    }
    let mut terminal = ratatui::try_init()?;
    let mut view = View::of(status);
    view.database = args.database;
    let ended = show(&mut terminal, &source, view, args.every.0).await;
    ratatui::restore();
    ended
}

async fn show(terminal: &mut DefaultTerminal, source: &Endpoint, mut view: View, every: Duration) -> Result<()> {
    let mut read_at = Instant::now();
    loop {
        terminal.draw(|frame| screen::draw(frame, &mut view))?;
        // This thread has nothing else to do.
        while event::poll(KEYS_EVERY)? {
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
            {
                let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                let before = view.database.clone();
                if is_interrupt || view.press(key.code) {
                    return Ok(());
                }
                if view.database != before {
                    read_at = Instant::now();
                    view.take(read(source, view.database.as_deref()).await);
                }
            }
            terminal.draw(|frame| screen::draw(frame, &mut view))?;
            if read_at.elapsed() >= every {
                break;
            }
        }
        if read_at.elapsed() >= every {
            read_at = Instant::now();
            view.take(read(source, view.database.as_deref()).await);
        }
    }
}
