#!/usr/bin/env python3
"""Sessions that share server connections: settings, temporary tables, prepared statements, blocks, cancel requests.

Two sessions run statements. Each statement runs on a server connection: the one that the session still has, or any idle one. A session
has two settings (a bit each), perhaps the name of a setting of an application (once set, it never becomes unknown), a prepared statement "s" with one of two texts, perhaps a temporary table, perhaps an open block. They are
what the session would have on a connection of its own. A connection has its real state, and a label: the settings that Freshet believes to
be in force. A session has a label, too, or none while it must ask. A look-up uses the session's label as part of the key.

A prepared statement remembers the definition of its table and the settings under which it was prepared: the server refuses it once the
definition is another one, and reads its constants under the settings of that time.

Checked: STATE (a statement finds the settings, the temporary table and the block that it would find on a connection of its own), PREPARED
(EXECUTE runs the session's own text), REFUSED (the server refuses no statement that the session has prepared under the definition in
force), CONSTANT (constants mean what they meant when the session prepared the statement), HIT (a hit is what the session's own query would
return), CANCEL (a cancel request meets no statement of another session).
"""
from collections import namedtuple
from search import Switches, explore, main

class P(Switches):
    replay=True        # at the check-out the difference of the labels is set
    asks='rest'        # behind what may change settings the session asks before it gives back ('rest') | 'late': it gives back first | None: never
    memo='label'       # the outcome of a plain SET is remembered by (label, text) | by the 'text' alone | None: not remembered
    block=True         # in a block, the connection is kept
    rollback=True      # the outcome of a SET in a block is not used, since the block may roll it back
    pins=True          # with a temporary table, the connection is kept
    names='entry'      # on the server connection, a statement is named by its text ('entry') | as the client names it, if 'there' already
    again=True         # it is prepared there again if the session has prepared it later than the connection
    steady=True        # a statement belongs to the label under which it was prepared: it is prepared there ahead of what may change settings, and keeps the connection under another label, or if the label was not known
    cancel='waits'     # the connection is kept until the cancel request has arrived | None
    groups=True        # a session takes a connection only if it knows no name that the session does not, and is given those of the session first | any
    connections=2
    acts=3             # statements of each session
    does=('set','hidden','temp','prepare','begin','cancel') # or 'alter', 'name'

# session: settings, temp, s (text, definition, settings when it was prepared), outer (settings that a rollback restores; None: no block), label | None, connection | None, statements left,
#          owed: must ask before its label is known again
Se=namedtuple('Se','has temp s outer label at left named',defaults=(False,))
# connection: settings in force, label | None, temp, statements prepared there (by name, as above), outer, user | None, cancel: session that asked
Co=namedtuple('Co','has label temp prepared outer user cancel named',defaults=(False,))
St=namedtuple('St','se co memo cache table bad')

CLEAN=(0,0)

def run(p):
    init=St((Se(CLEAN,False,None,None,CLEAN,None,p.acts),)*2,(Co(CLEAN,CLEAN,False,(),None,None,None),)*p.connections,(),(),0,'')
    private=lambda me,c:p.steady and me.s is not None and (me.label!=me.s[2] or any(name==('own',me.s[0]) for name,_ in c.prepared))
    put=lambda t,i,v:t[:i]+(v,)+t[i+1:]
    bit=lambda has,i:put(has,i,1)
    def steps(s):
        out=[]
        def add(lab,**k): out.append((lab,s._replace(**k)))
        for i,me in enumerate(s.se):
            who='AB'[i]
            # a hit needs no connection; the key has the label
            if me.label is not None and me.outer is None and not me.temp:
                for key,made in s.cache:
                    if key==me.label and made!=me.has: add(f'{who}: HIT of a result made under {made}, has {me.has}',bad=('HIT','another result'))
            # at rest: asks, or gives back
            if me.at is not None:
                c=s.co[me.at]
                asked=me.label is not None
                if not asked and me.outer is None and p.asks=='rest':
                    add(f'{who}: asks, {c.has}',se=put(s.se,i,me._replace(label=c.has)),co=put(s.co,me.at,c._replace(label=c.has)))
                may=(me.outer is None or not p.block) and not (p.pins and me.temp) and not private(me,c) and not (p.cancel and c.cancel is not None) and (asked or p.asks!='rest')
                if may: add(f'{who}: gives back',se=put(s.se,i,me._replace(at=None)),co=put(s.co,me.at,c._replace(user=None,label=c.label if asked else c.label)))
            if not me.left: continue
            for at in ([me.at] if me.at is not None else [n for n,c in enumerate(s.co) if c.user is None]):
                c=s.co[at]; mine=me; note=''
                if p.groups and me.at is None:
                    if c.named and not me.named: continue
                    c=c._replace(named=me.named)
                if me.at is None:
                    label=me.label
                    if label is None: label=c.has if p.asks=='late' else c.label      # asks on whatever connection it now has | believes
                    if p.replay and c.label!=label: c=c._replace(has=label,label=label); note=' (replayed)'
                    mine=me._replace(label=label); c=c._replace(user=i)
                bad=''
                if c.has!=me.has or c.temp!=me.temp or c.named!=me.named or (c.outer is None)!=(me.outer is None): bad=('STATE',f'finds {c.has} {c.temp} {c.named}, has {me.has} {me.temp} {me.named}')
                mine=mine._replace(at=at,left=me.left-1)
                def act(lab,m=mine,c=c,**k):
                    add(f'{who}: {lab} on {at}{note}',**{**dict(se=put(s.se,i,m),co=put(s.co,at,c),bad=bad),**k})
                key=mine.label
                fill=s.cache if key is None or mine.outer is not None or mine.temp or any(k==key for k,_ in s.cache) else tuple(sorted(s.cache+((key,c.has),)))
                act('reads',cache=fill)
                entry=lambda text,has: (text,has) if p.steady else text
                if p.steady and mine.s is not None and not bad and mine.label==mine.s[2] and mine.outer is None and ('set' in p.does or 'hidden' in p.does):
                    # ahead of a statement that may change settings
                    name=entry(mine.s[0],mine.s[2]); there=dict(c.prepared)
                    if name not in there and ('own',mine.s[0]) not in there: c=c._replace(prepared=tuple(sorted({**there,name:(mine.s[0],s.table,c.has)}.items(),key=str)))
                if 'set' in p.does:
                    for b in (0,1):
                        new=bit(mine.has,b); label=None; memo=s.memo
                        if mine.label is not None and p.memo and not (p.rollback and mine.outer is not None):
                            name=(mine.label,b) if p.memo=='label' else b
                            known=dict(memo)
                            if name in known: label=known[name]
                            else: memo=tuple(sorted(memo+((name,bit(c.has,b)),)))
                        act(f'SET {b}',m=mine._replace(has=new,label=label),c=c._replace(has=bit(c.has,b),label=label if label is not None else c.label),memo=memo)
                if 'name' in p.does: act('SET LOCAL app.x',m=mine._replace(named=True),c=c._replace(named=True))
                if 'hidden' in p.does:
                    act('a function sets 0',m=mine._replace(has=bit(mine.has,0),label=None if p.asks else mine.label),c=c._replace(has=bit(c.has,0)))
                if 'temp' in p.does and not mine.temp and mine.outer is None: act('CREATE TEMP',m=mine._replace(temp=True),c=c._replace(temp=True))
                if 'begin' in p.does:
                    if mine.outer is None and c.outer is None: act('BEGIN',m=mine._replace(outer=mine.has),c=c._replace(outer=c.has))
                    elif c.outer is not None and mine.outer is not None:
                        label=mine.label if not p.rollback else None
                        act('ROLLBACK',m=mine._replace(has=mine.outer,outer=None,label=label),c=c._replace(has=c.outer,outer=None))
                if 'prepare' in p.does:
                    there=dict(c.prepared)
                    if mine.s is None:
                        for text in 'xy':
                            own=p.steady and mine.label is None
                            name='s' if p.names!='entry' else ('own',text) if own else entry(text,mine.label)
                            new=(text,s.table,c.has)
                            act(f'PREPARE s AS {text}',m=mine._replace(s=new),c=c._replace(prepared=tuple(sorted({**there,name:there.get(name,new) if p.names!='entry' else new}.items(),key=str))))
                    else:
                        text,table,has=mine.s
                        name='s' if p.names!='entry' else ('own',text) if ('own',text) in there else entry(text,has)
                        ran=there.get(name)
                        if ran is None or (p.again and ran[1]<table): ran=(text,s.table,c.has)
                        wrong=''
                        if ran[0]!=text: wrong=('PREPARED',f'{ran[0]} for {text}')
                        elif ran[1]!=s.table and table==s.table: wrong=('REFUSED','it was prepared there before the table was altered')
                        elif ran[2]!=has: wrong=('CONSTANT',f'read under {ran[2]}, not {has}')
                        act('EXECUTE s',c=c._replace(prepared=tuple(sorted({**there,name:ran}.items(),key=str))),bad=bad or wrong)
                if 'cancel' in p.does and me.at is not None and c.cancel is None: act('asks to cancel what runs',c=c._replace(cancel=i))
        if 'alter' in p.does and not s.table: add('the table is altered',table=1)
        for at,c in enumerate(s.co):
            if c.cancel is not None:
                add(f'the cancel request of {"AB"[c.cancel]} arrives at {at}',co=put(s.co,at,c._replace(cancel=None)),
                    bad=('CANCEL','it meets another session') if c.user is not None and c.user!=c.cancel else '')
        return out
    return explore(init,lambda s:s.bad or None,steps)

SETTINGS=dict(does=('set','hidden'))
V=[
 P('U1 settings: labels, replay, asked before the connection is given back','HOLDS',fast=dict(acts=2),**SETTINGS),
 P('U2 no replay','VIOLATION STATE',replay=False,**SETTINGS),
 P('U3 the text of SET alone tells the label, functions are overlooked','VIOLATION',asks=None,**SETTINGS),
 P('U4 given back first, asked at the next check-out','VIOLATION',asks='late',**SETTINGS),
 P('U5 the outcome of a SET remembered by its text alone','VIOLATION',memo='text',**SETTINGS),
 P('U6 no outcome remembered','HOLDS',memo=None,fast=dict(acts=2),**SETTINGS),
 P('U7 blocks: kept to their end, a SET in them is asked for behind','HOLDS',does=('set','begin'),fast=dict(acts=2)),
 P('U8 given back within a block','VIOLATION STATE',block=False,does=('set','begin')),
 P('U9 the outcome of a SET in a block is believed, and the block rolls back','VIOLATION',rollback=False,does=('set','begin')),
 P('U10 temporary tables: a pin','HOLDS',does=('temp',)),
 P('U11 no pin','VIOLATION STATE',pins=False,does=('temp',)),
 P('U12 prepared statements named by their text','HOLDS',does=('prepare',)),
 P('U13 named as the client names them','VIOLATION PREPARED',names='there',does=('prepare',)),
 P('U17 tables that are altered: prepared again where it was prepared earlier than by the session','HOLDS',does=('prepare','alter')),
 P('U18 prepared once on each connection','VIOLATION REFUSED',again=False,does=('prepare','alter')),
 P('U19 constants: an entry for each label, and a connection kept while the statement is of another label','HOLDS',does=('prepare','set'),fast=dict(acts=2)),
 P('U20 one entry, prepared under whatever settings are in force','VIOLATION CONSTANT',steady=False,does=('prepare','set')),
 P('U21 names of settings of applications: connections that know no others, and are given those of the session','HOLDS',does=('name','begin')),
 P('U22 any connection','VIOLATION STATE',groups=False,does=('name',)),
 P('U14 cancel requests: the connection is kept until they have arrived','HOLDS',does=('cancel',)),
 P('U15 given back with a cancel request under way','VIOLATION CANCEL',cancel=None,does=('cancel',)),
 P('U16 everything together, one connection','HOLDS',connections=1,acts=3,fast=dict(acts=2)),
]
if __name__=='__main__': main(V,run)
