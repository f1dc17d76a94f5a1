# What an application does with pg for Ruby: every way of executing, asynchronous queries, single row mode, COPY, LISTEN.

require 'json'
require 'pg'

def print_line(what, value)
  puts "#{what} #{JSON.generate(value)}"
end

def expect(what, got, expected)
  raise "#{what}: #{got.inspect}, not #{expected.inspect}" unless got == expected
end

# Asks often enough that the later answers come from memory, and always expects the same.
def steady(what)
  first = yield
  20.times do
    sleep 0.01
    expect(what, yield, first)
  end
  print_line(what, first)
end

def told(result)
  columns = result.fields.each_index.map { |i| [result.fname(i), result.ftype(i), result.fformat(i)] }
  [result.cmd_status, columns, result.values.map { |row| row.map { |v| v.is_a?(String) ? v.unpack1('H*') : v } }]
end

def fails(code)
  yield
rescue PG::Error => e
  expect('code', e.result&.error_field(PG::PG_DIAG_SQLSTATE), code)
else
  raise "no error #{code}"
end

def reads(db)
  steady('exec') { told(db.exec('select title, genre, votes as simple from film where id = 1')) }
  steady('exec_params') { told(db.exec_params('select title, genre, votes as unnamed from film where id = $1', [2])) }
  typed = [{ value: [3].pack('N'), type: 23, format: 1 }]
  steady('in binary') { told(db.exec_params('select title, votes as in_binary from film where id = $1', typed, 1)) }
  db.prepare('by name', 'select title, genre, votes as prepared from film where id = $1')
  steady('prepared') { told(db.exec_prepared('by name', [4])) }
  steady('prepared, no row') { told(db.exec_prepared('by name', [100_000])) }
  described = db.describe_prepared('by name')
  print_line('described', [described.fields, described.paramtype(0)])
  [0, 1].each { |format| steady("kinds #{format}") { told(db.exec_params('select * from kinds order by id', [], format)) } }
  db.type_map_for_results = PG::BasicTypeMapForResults.new(db)
  steady('mapped') { db.exec_params('select id, yes, exact, words, day from kinds where id = $1', [1]).to_a.to_s }
  db.type_map_for_results = PG::TypeMapAllStrings.new
end

def asynchronous(db)
  steady('async') { told(db.async_exec_params('select votes as async from film where id = $1', [5])) }
  steady('sent') do
    db.send_query_params('select votes as sent from film where id = $1', [6])
    db.block
    got = told(db.get_result)
    expect('end', db.get_result, nil)
    got
  end
  steady('single rows') do
    db.send_query_params('select id, votes as single from film where id <= $1 order by id', [5])
    db.set_single_row_mode
    rows = db.get_result.stream_each_row.to_a
    expect('end', db.get_result, nil)
    rows
  end
  db.send_query('select 1; select 2')
  print_line('several', Array.new(3) { db.get_result&.values })
end

def pipelines(db)
  steady('pipeline') do
    db.enter_pipeline_mode
    (1..20).each { |id| db.send_query_params('select id, votes as pipelined from film where id = $1', [id]) }
    db.pipeline_sync
    db.send_query_params('select 1 / $1::int', [0])
    db.send_query_params('select 1', [])
    db.pipeline_sync
    got = []
    while got.count('SYNC') < 2
      begin
        result = db.get_result or next
        got << (result.result_status == PG::PGRES_PIPELINE_SYNC ? 'SYNC' : result.check && result.values)
      rescue PG::Error => e
        got << (e.result.error_field(PG::PG_DIAG_SQLSTATE) || 'aborted')
      end
    end
    db.exit_pipeline_mode
    got
  end
end

def writes(db)
  votes = -> { db.exec_params('select votes as own from film where id = $1', [3]).getvalue(0, 0).to_i }
  30.times do |n|
    expect('updated', db.exec_params('update film set votes = $1 where id = 3', [n]).cmd_tuples, 1)
    3.times { expect('own write', votes.call, n) }
  end
  begin
    db.transaction do
      db.exec('update film set votes = 1000 where id = 3')
      expect('in the transaction', votes.call, 1000)
      raise KeyError
    end
  rescue KeyError
    expect('after it', votes.call, 29)
  end
end

def failures(db)
  ['select nothing from film', 'select 1 / 0', 'selec', "insert into film values (1, 'x')"].each do |sql|
    db.exec(sql)
  rescue PG::Error => e
    fields = [PG::PG_DIAG_SEVERITY, PG::PG_DIAG_SQLSTATE, PG::PG_DIAG_MESSAGE_PRIMARY, PG::PG_DIAG_STATEMENT_POSITION]
    print_line(e.class, fields.map { |field| e.result.error_field(field) } + [e.message])
  end
  db.set_notice_processor { |message| print_line('notice', message) }
  db.exec("do $$ begin raise notice 'hello'; raise warning 'world'; end $$")
  db.send_query('select pg_sleep(60)')
  sleep 0.1
  db.cancel
  fails('57014') { db.get_last_result }
  print_line('usable', db.exec('select 1').values)
end

def copies(db)
  db.copy_data('copy role (film_id, actor) from stdin') do
    2000.times { |i| db.put_copy_data("#{i % 200 + 1}\tcopied #{i}\n") }
  end
  expect('copied', db.exec("select count(*) from role where actor like 'copied%'").getvalue(0, 0), '2000')
  lines = 0
  db.copy_data('copy role to stdout', PG::TextDecoder::CopyRow.new) { lines += 1 while db.get_copy_data }
  expect('lines', lines, 2500)
  fails('22P02') { db.copy_data('copy role (film_id, actor) from stdin') { db.put_copy_data("x\ty\n") } }
end

def notifications(db, url)
  db.exec('listen channel')
  other = PG.connect(url)
  other.exec("notify channel, 'hello'")
  db.wait_for_notify(10) { |channel, _, payload| print_line('notification', [channel, payload]) } or raise 'no notification'
  other.close
end

def large_objects(db)
  db.transaction do
    oid = db.lo_creat
    object = db.lo_open(oid, PG::INV_READ | PG::INV_WRITE)
    db.lo_write(object, 'x' * 100_000)
    db.lo_lseek(object, 99_990, PG::SEEK_SET)
    expect('large object', db.lo_read(object, 100), 'x' * 10)
    db.lo_close(object)
    db.lo_unlink(oid)
  end
end

db = PG.connect(ARGV[0])
reads(db)
asynchronous(db)
pipelines(db)
writes(db)
failures(db)
copies(db)
notifications(db, ARGV[0])
large_objects(db)
db.close
