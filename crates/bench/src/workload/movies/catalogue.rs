//! The source of the movies, and the requested movies.
//!
//! Generated movies are known beforehand. For IMDb's files the requested titles are the movies with the most votes. A run reads these from the
//! database, so only the load needs the files.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;

use super::super::loading::{self, Data, Database, State};
use super::imdb::Imdb;
use super::{Movies, POPULAR, Size};
use crate::target::Target;

/// The most titles of IMDb's, besides the popular ones, that the background writer changes.
const OTHERS_MAX: usize = 100_000;

/// The movies.
#[derive(Debug)]
pub(in super::super) struct Catalogue {
    source: Source,
    titles: OnceLock<Arc<[Arc<str>]>>,
    /// Keys of the requested titles, and of others.
    ids: OnceLock<Arc<[Vec<i64>; 2]>>,
}

#[derive(Debug)]
enum Source {
    Made(Movies),
    Imdb(Imdb),
}

impl Catalogue {
    /// A catalogue of generated movies.
    pub(in super::super) fn made(size: Size) -> Self {
        let titles: Arc<[Arc<str>]> = size.popular_titles().into_iter().map(Arc::from).collect();
        let source = Source::Made(Movies::new(size));
        Self { source, titles: OnceLock::from(titles), ids: OnceLock::new() }
    }

    /// A catalogue of the movies in IMDb's files.
    pub(in super::super) fn imdb(directory: PathBuf) -> Self {
        Self { source: Source::Imdb(Imdb::new(directory)), titles: OnceLock::new(), ids: OnceLock::new() }
    }

    pub(in super::super) fn settings(&self) -> Vec<(String, String)> {
        match &self.source {
            Source::Made(movies) => movies.settings(),
            Source::Imdb(imdb) => imdb.settings(),
        }
    }

    /// The titles that the load requests.
    pub(in super::super) fn titles(&self) -> Arc<[Arc<str>]> {
        Arc::clone(self.titles.get_or_init(|| Arc::new([])))
    }

    /// Keys of the movies with these titles, and keys of other rows.
    pub(in super::super) fn ids(&self) -> Arc<[Vec<i64>; 2]> {
        let made = || match &self.source {
            Source::Made(movies) => movies.title_ids(),
            Source::Imdb(_) => [Vec::new(), Vec::new()],
        };
        Arc::clone(self.ids.get_or_init(|| Arc::new(made())))
    }

    /// Key of a movie with this title. It is unknown for IMDb's files.
    pub(in super::super) fn movie_id(&self, title: &str) -> Option<i64> {
        let Source::Made(movies) = &self.source else { return None };
        movies.movie_id(self.titles().iter().position(|known| **known == *title)?)
    }

    pub(in super::super) async fn load(&self, target: &Target, bar: &ProgressBar) -> Result<u64> {
        match &self.source {
            Source::Made(movies) => loading::load(movies, target, bar).await,
            Source::Imdb(imdb) => loading::load(imdb.open()?, target, bar).await,
        }
    }

    /// Checks that the data exist. For IMDb's files it also reads the popular titles.
    pub(in super::super) async fn ready(&self, workload: &str, target: &Target) -> Result<()> {
        let imdb = match &self.source {
            Source::Made(movies) => return loading::ready(movies, workload, target).await,
            Source::Imdb(imdb) => imdb,
        };
        let mut database = Database::open(target).await?;
        match loading::state(imdb, &mut database).await? {
            // The directory may have another name on this machine.
            State::Other(found) if found.starts_with("--imdb ") => {}
            state => loading::explain(&state, (workload, &loading::settings_text(imdb)), target)?,
        }
        let (titles, ids) = popular(&mut database).await.context("looking for the popular titles")?;
        // A second database has the same rows, so the first values remain.
        let _ = (self.titles.set(titles), self.ids.set(ids));
        Ok(())
    }
}

/// The titles of the movies with the most votes, the keys of these movies, and keys of other rows.
async fn popular(database: &mut Database) -> Result<(Arc<[Arc<str>]>, Arc<[Vec<i64>; 2]>)> {
    let voted = format!(
        "SELECT t.title FROM title t JOIN title_rating r ON r.title_id = t.title_id WHERE t.type = 'movie' \
         GROUP BY t.title ORDER BY max(r.num_votes) DESC, t.title LIMIT {POPULAR}"
    );
    let rows = database.texts(&voted).await?;
    let titles: Arc<[Arc<str>]> = rows.into_iter().flatten().flatten().map(Arc::from).collect();
    ensure!(!titles.is_empty(), "no movie has votes");
    let of_popular = format!(
        "SELECT t.title_id FROM title t JOIN ({voted}) p ON p.title = t.title WHERE t.type = 'movie' ORDER BY t.title_id"
    );
    let of_others = format!(
        "SELECT r.title_id FROM title_rating r JOIN title t ON t.title_id = r.title_id WHERE t.type <> 'movie' \
         ORDER BY r.title_id LIMIT {OTHERS_MAX}"
    );
    let ids = [numbers(database, &of_popular).await?, numbers(database, &of_others).await?];
    Ok((titles, Arc::new(ids)))
}

async fn numbers(database: &mut Database, sql: &str) -> Result<Vec<i64>> {
    let rows = database.texts(sql).await?;
    rows.into_iter().flatten().flatten().map(|text| text.parse().with_context(|| text.clone())).collect()
}
