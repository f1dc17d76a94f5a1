#!/usr/bin/env python3
"""DDL as a commit that matches everything, and the loading of the catalogue as a fill.

The query reads a view that shows table a, until the DDL D makes it show table b: result = (table, version of its row). The tags of a
fill come from the catalogue that Freshet has loaded, the result from the one that the query meets. So a result of the new
definition under the tags of the old one is missed by every write to b.

D has a place in the stream (event triggers), or none (polling: a load finds the difference). Its delivery invalidates what it touches and
fails those flights; until an accepted load shows it, no fill begins that it touches. That a flight's S0 shows D is no excuse: its tags
are those of the old catalogue. Another definition E is in the stream too, and does not touch the view. A load is accepted only if it
shows all delivered definitions, or in any case: then fills go on that depend on none of those it does not show.

Checked: FRESH, whenever a hit could be served (entry installed, applied >= read_end): it equals the query on some state that
contains all that was delivered. Polling: D counts as delivered once an accepted load shows it; before, D seen by a query is the
stated exception (bounded by D of the lease).
"""
from collections import namedtuple
from search import Switches, explore, main
from join_keys import reflects, value, link

D,WA,WB,E=range(4); NAME=('D','Wa','Wb','E')

class P(Switches):
    stream=True        # D is in the stream
    invalidate=True         # its delivery invalidates
    flights='fail'     # what becomes of flights under way at its delivery, or at a load with a difference: 'fail'
                       # | 'candidate': may install if their S0 shows D | 'ignore'
    closed='all'       # until an accepted load shows it, no fill begins: 'all' | 'touched': none that it touches | None
    accept='all'       # a load is accepted only if its snapshot shows 'all' delivered definitions | 'any': in any case | 'forget': and those
                       # that it does not show count as shown
    other=False        # there is E
    flush=True         # a load with another definition than before flushes, and fails the flights
    read_end=True      # hits need applied >= read_end
    loads=2            # loads that may differ; one under way at a time
    fills=2

# cat: 'a' | 'b'   unshown: delivered definitions that no accepted load showed   load: None | snapshot   ent: (result, tag, read_end)
# fill: (phase, candidates, S0, tag, result, read_end)   known: a load that showed D was accepted
St=namedtuple('St','wal vis dl pend cat unshown load loads known ent fill left')
FAIL='fail'

def run(p):
    none=frozenset()
    init=St((),none,0,none,'a',none,None,p.loads,False,None,None,p.fills)
    show=lambda xs:'{'+','.join(x if x==FAIL else NAME[x] for x in sorted(xs,key=str))+'}'
    matches=lambda x,tag:x==D or x==(WA if tag=='a' else WB)
    def delivered(s):
        dl=set(s.wal[:s.dl])
        return dl if p.stream else (dl-{D})|({D} if s.known else set())
    def check(s):
        if s.ent is None or (p.read_end and s.dl<s.ent[2]): return None
        if not p.stream and not s.known and D in s.vis: return None
        if reflects(s.ent[0],delivered(s),s.wal): return None
        return ('FRESH',f'entry={s.ent[0]} tagged {s.ent[1]} can be served, delivered {show(delivered(s))}')
    def struck(f): return f and {'fail':(f[0],f[1]|{FAIL},*f[2:]),'candidate':(f[0],f[1]|{D},*f[2:]),'ignore':f}[p.flights]
    def steps(s):
        out=[]
        def add(lab,**k): out.append((lab,s._replace(**k)))
        for w in range(4 if p.other else 3):
            if w not in s.wal: add(f'{NAME[w]}: commit record in WAL ({len(s.wal)+1})',wal=s.wal+(w,))
            elif w not in s.vis: add(f'{NAME[w]}: visible',vis=s.vis|{w})
        if s.dl<len(s.wal):
            x=s.wal[s.dl]; f=s.fill
            if x==E: add('stream delivers E',dl=s.dl+1,pend=s.pend|{E},unshown=s.unshown|{E})
            elif x!=D:
                hit=s.ent and matches(x,s.ent[1])
                add(f'stream delivers {NAME[x]}'+(', invalidates' if hit else ''),dl=s.dl+1,ent=None if hit else s.ent,pend=s.pend|{x},
                    fill=f and ((f[0],f[1]|{x},*f[2:]) if matches(x,f[3]) else f))
            elif p.stream: add('stream delivers D',dl=s.dl+1,ent=None if p.invalidate else s.ent,pend=s.pend|{D},fill=struck(f),unshown=s.unshown|{D})
            else: add('stream passes D',dl=s.dl+1)
        # loads of the catalogue: asked for at any time, by the poller or because it is not in use
        if s.load is None:
            if s.loads: add(f'load: snapshot {show(s.vis)}, the view shows {link(s.vis)}',load=s.vis,loads=s.loads-1)
        elif p.accept=='all' and s.unshown-s.load: add(f'load refused: it does not show {show(s.unshown-s.load)}; asked again',load=None,loads=s.loads+1)
        else:
            new=link(s.load)
            go=p.flush and new!=s.cat
            add(f'load accepted: the view shows {new}'+(', flush' if go else ''),cat=new,unshown=none if p.accept=='forget' else s.unshown-s.load,load=None,known=s.known or D in s.load,ent=None if go else s.ent,fill=struck(s.fill) if go else s.fill)
        f=s.fill
        def fill(lab,f,**k): add('fill: '+lab,fill=f,**k)
        if f is None:
            shut={'all':s.unshown,'touched':s.unshown&{D},None:none}[p.closed]
            if s.ent is None and s.left and not shut: fill(f'registered, tag {s.cat} (pending {show(s.pend)})',('reg',frozenset(x for x in s.pend if matches(x,s.cat)),None,s.cat,None,0),left=s.left-1)
        elif f[0]=='reg': fill(f'S0={show(s.vis)}',('s0',f[1],s.vis,*f[3:]))
        elif f[0]=='s0': fill(f'query: result={value(s.vis)}',('read',*f[1:4],value(s.vis),0))
        elif f[0]=='read': fill(f'end()={len(s.wal)}',('done',*f[1:5],len(s.wal)))
        else: fill(f'result {f[4]} tagged {f[3]} arrives: '+('not cached' if f[1]-f[2] else 'INSTALL'),None,ent=s.ent if f[1]-f[2] else (f[4],f[3],f[5]))
        return out
    return explore(init,check,steps)

V=[
 P('Q1 DDL invalidates, fails flights, stops fills; loads are accepted under proof','HOLDS',fast=dict(fills=1)),
 P('Q2 a load is accepted without proof','VIOLATION',accept='forget'),
 P('Q3 fills begin between delivery and load, under the old catalogue','VIOLATION',closed=None),
 P('Q4 flights under way are not touched','VIOLATION',flights='ignore'),
 P('Q5 flights under way may install if their S0 shows the DDL','VIOLATION',flights='candidate'),
 P('Q6 DDL does not invalidate','VIOLATION',invalidate=False),
 P('Q7 no read_end rule: tags of the old catalogue, result of the new','VIOLATION',read_end=False),
 P('Q8 polling: a load with a difference flushes and fails flights','HOLDS',stream=False,fast=dict(fills=1)),
 P('Q9 polling: a load with a difference leaves flights alone','VIOLATION',stream=False,flights='ignore'),
 P('Q10 polling: a load with a difference does not flush','VIOLATION',stream=False,flush=False),
 P('Q11 fills stop that a definition touches; loads are accepted that miss some','HOLDS',closed='touched',accept='any',other=True,fast=dict(fills=1)),
 P('Q12 the same, and what a load misses counts as shown','VIOLATION',closed='touched',accept='forget',other=True),
]
if __name__=='__main__': main(V,run)
