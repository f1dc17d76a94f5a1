SET SESSION sql_mode = 'NO_ENGINE_SUBSTITUTION';
DROP TABLE IF EXISTS wp_options, wp_posts, wp_postmeta, wp_terms, wp_term_taxonomy, wp_term_relationships, wp_comments;
CREATE TABLE wp_options (option_id bigint(20) unsigned NOT NULL auto_increment, option_name varchar(191) NOT NULL default '',
    option_value longtext NOT NULL, autoload varchar(20) NOT NULL default 'yes', PRIMARY KEY (option_id),
    UNIQUE KEY option_name (option_name), KEY autoload (autoload)) DEFAULT CHARACTER SET utf8mb4;
INSERT INTO wp_options (option_name, option_value) VALUES ('siteurl', 'http://localhost'), ('blogname', 'A blog'),
    ('active_plugins', 'a:0:{}'), ('posts_per_page', '10');
CREATE TABLE wp_posts (ID bigint(20) unsigned NOT NULL auto_increment, post_author bigint(20) unsigned NOT NULL default 0,
    post_date datetime NOT NULL default '0000-00-00 00:00:00', post_content longtext NOT NULL, post_title text NOT NULL,
    post_status varchar(20) NOT NULL default 'publish', post_name varchar(200) NOT NULL default '',
    post_type varchar(20) NOT NULL default 'post', comment_count bigint(20) NOT NULL default 0, PRIMARY KEY (ID),
    KEY post_name (post_name(191)), KEY type_status_date (post_type, post_status, post_date, ID))
    DEFAULT CHARACTER SET utf8mb4;
INSERT INTO wp_posts (post_author, post_date, post_content, post_title, post_name) VALUES
    (1, '2024-01-01 10:00:00', 'Hello', 'First', 'first'), (1, '2024-01-02 10:00:00', 'Again', 'Second', 'second'),
    (1, '2024-01-03 10:00:00', 'And again, ünïcode ✓', 'Third', 'third'), (1, '0000-00-00 00:00:00', '', 'Draft', '');
CREATE TABLE wp_postmeta (meta_id bigint(20) unsigned NOT NULL auto_increment, post_id bigint(20) unsigned NOT NULL default 0,
    meta_key varchar(255) default NULL, meta_value longtext, PRIMARY KEY (meta_id), KEY post_id (post_id),
    KEY meta_key (meta_key(191))) DEFAULT CHARACTER SET utf8mb4;
INSERT INTO wp_postmeta (post_id, meta_key, meta_value) VALUES (1, '_edit_last', '1'), (2, '_thumbnail_id', '17'), (2, 'x', '');
CREATE TABLE wp_terms (term_id bigint(20) unsigned NOT NULL auto_increment, name varchar(200) NOT NULL default '',
    slug varchar(200) NOT NULL default '', PRIMARY KEY (term_id), KEY slug (slug(191))) DEFAULT CHARACTER SET utf8mb4;
INSERT INTO wp_terms VALUES (1, 'News', 'news'), (2, 'Life', 'life');
CREATE TABLE wp_term_taxonomy (term_taxonomy_id bigint(20) unsigned NOT NULL auto_increment, term_id bigint(20) unsigned NOT NULL,
    taxonomy varchar(32) NOT NULL default '', count bigint(20) NOT NULL default 0, PRIMARY KEY (term_taxonomy_id));
INSERT INTO wp_term_taxonomy VALUES (1, 1, 'category', 2), (2, 2, 'post_tag', 1);
CREATE TABLE wp_term_relationships (object_id bigint(20) unsigned NOT NULL, term_taxonomy_id bigint(20) unsigned NOT NULL,
    term_order int(11) NOT NULL default 0, PRIMARY KEY (object_id, term_taxonomy_id));
INSERT INTO wp_term_relationships VALUES (1, 1, 0), (2, 1, 0), (2, 2, 0);
CREATE TABLE wp_comments (comment_ID bigint(20) unsigned NOT NULL auto_increment, comment_post_ID bigint(20) unsigned NOT NULL,
    comment_author tinytext NOT NULL, comment_content text NOT NULL, comment_approved varchar(20) NOT NULL default '1',
    comment_date datetime NOT NULL default '0000-00-00 00:00:00', PRIMARY KEY (comment_ID), KEY comment_post_ID (comment_post_ID))
    DEFAULT CHARACTER SET utf8mb4
