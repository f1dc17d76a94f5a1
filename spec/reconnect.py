#!/usr/bin/env python3
"""The stream breaks: with a persistent slot the entries are kept, with a new slot everything is flushed; the process may die too.

A slot goes on from its confirmed position, so commits are delivered again. Kept across a break are entries, PENDING and flights;
nothing is served until the stream is caught up. A process that starts again with its old slot knows nothing of PENDING: whatever
was delivered and not proven visible must come once more, so the slot is confirmed only below the oldest PENDING commit. The slot's
creation gives a position; commits before it may not be visible yet, so caching starts once they are.

One key, two writers that match it, fills one after the other with PENDING and S0, a prober.

Checked whenever an entry could be served: FRESH (it reflects all that the stream has passed, in this process) and BOUND (it
reflects all that was visible when the stream came back: the break was longer than D).
"""
from collections import namedtuple
from search import Switches, explore, main

class P(Switches):
    slot='same'        # after a break: the 'same' slot goes on | a 'new' one
    entries=False      # entries survive a new slot
    flights=False      # flights survive a new slot
    exported=True      # with a new slot nothing is cached until all that its snapshot lacks is visible
    confirm='pending'  # confirmed: 'pending': below the oldest PENDING commit | 'all' that was delivered
    pending=True       # PENDING is kept across a break
    catch='end'        # served again once the stream has passed: 'end': an end() read after the break | 'place': where it was | None
    breaks=2
    restarts=1         # of the process
    fills=2
    rounds=1           # of the prober

# dl: what this process has been delivered   pos: where the stream stands   link: 'up' | 'down' | ('new', start)
# target: the position that makes it caught up, None: not read yet   must: visible when the stream came back
St=namedtuple('St','wal vis dl pos conf link target must pend ent fill left prb breaks restarts')

def run(p):
    none=frozenset()
    init=St((),none,0,0,0,'up',0,none,none,None,None,p.fills,('idle',0,None),p.breaks,p.restarts)
    show=lambda xs:'{'+','.join(f'W{x}' for x in sorted(xs))+'}'
    def check(s):
        if s.ent is None or s.link!='up' or s.target is None or s.pos<s.target: return None
        if not frozenset(s.wal[:s.dl])<=s.ent: return ('FRESH',f'entry={show(s.ent)} can be served, the stream has passed {show(s.wal[:s.dl])}')
        if not s.must<=s.ent: return ('BOUND',f'entry={show(s.ent)} can be served, visible since before the stream came back: {show(s.must)}')
        return None
    def steps(s):
        out=[]
        def add(lab,**k): out.append((lab,s._replace(**k)))
        for w in (0,1):
            if w not in s.wal: add(f'W{w}: commit record in WAL',wal=s.wal+(w,))
            elif w not in s.vis: add(f'W{w}: visible',vis=s.vis|{w})
        back=lambda pos,dl:dict(link='up',pos=pos,dl=dl,must=s.vis,target=0 if p.catch is None else dl if p.catch=='place' else None)
        if s.link=='up':
            if s.pos<len(s.wal):
                x=s.wal[s.pos]; f=s.fill
                add(f'stream delivers W{x}'+(' again' if s.pos<s.dl else ''),pos=s.pos+1,dl=max(s.dl,s.pos+1),ent=None,pend=s.pend|{x},fill=f and (f[0],f[1]|{x},*f[2:]))
            if s.target is None: add(f'end()={len(s.wal)} read',target=len(s.wal))
            c=s.dl if p.confirm=='all' else min([s.wal.index(x) for x in s.pend],default=s.dl)
            if c>s.conf: add(f'slot confirmed up to {c}',conf=c)
            if s.breaks: add('the stream breaks',link='down',breaks=s.breaks-1)
        elif s.link=='down':
            if p.slot=='same': add(f'the same slot goes on from {s.conf}',**{**back(s.conf,s.dl),'pend':s.pend if p.pending else none})
            else: add(f'a new slot from {len(s.wal)}',link=('new',len(s.wal)),pend=none,ent=s.ent if p.entries else None,fill=s.fill if p.flights else None)
        elif not p.exported or frozenset(s.wal[:s.link[1]])<=s.vis:
            add('the new slot is in use',**back(s.link[1],s.link[1]),conf=s.link[1])
        if s.restarts: add(f'the process starts again, the slot goes on from {s.conf}',**back(s.conf,s.conf),pend=none,ent=None,fill=None,prb=('idle',s.prb[1],None),restarts=s.restarts-1)
        if s.prb[0]=='idle' and s.prb[1]<p.rounds and s.pend: add(f'prober takes snapshot {show(s.vis)}',prb=('out',s.prb[1]+1,s.vis))
        elif s.prb[0]=='out': add(f'prober answer {show(s.prb[2])}',prb=('idle',s.prb[1],None),pend=s.pend-s.prb[2])
        f=s.fill
        if f is None:
            if s.ent is None and s.left and s.link in ('up','down'): add(f'fill registered (pending {show(s.pend)})',fill=('reg',s.pend,None,None),left=s.left-1)
        elif f[0]=='reg': add(f'S0={show(s.vis)}',fill=('s0',f[1],s.vis,None))
        elif f[0]=='s0': add(f'query: result={show(s.vis)}',fill=('done',f[1],f[2],s.vis))
        else: add(f'result {show(f[3])}: '+('not cached' if f[1]-f[2] else 'INSTALL'),fill=None,ent=s.ent if f[1]-f[2] else f[3])
        return out
    return explore(init,check,steps)

SMALL=dict(breaks=1,fills=1)
V=[
 P('R1 new slot: flush, cache once its snapshot is visible','HOLDS',slot='new',restarts=0,fast=SMALL),
 P('R2 R1, cache as soon as the slot stands','VIOLATION FRESH',slot='new',restarts=0,exported=False),
 P('R3 new slot, entries kept','VIOLATION FRESH',slot='new',restarts=0,entries=True),
 P('R4 new slot, a flight of the old stream installs','VIOLATION FRESH',slot='new',restarts=0,flights=True),
 P('R5 same slot: all kept, bypass until caught up, confirmed below the oldest PENDING; the process starts again','HOLDS',fast=SMALL),
 P('R6 R5 confirming all that was delivered','VIOLATION FRESH',confirm='all'),
 P('R7 R6 without a start of the process','HOLDS',confirm='all',restarts=0,fast=SMALL),
 P('R8 R7, PENDING dropped at the break','VIOLATION FRESH',confirm='all',restarts=0,pending=False),
 P('R9 R5, served as soon as the slot goes on','VIOLATION BOUND',catch=None),
 P('R10 R5, served once the stream is where it was before','VIOLATION BOUND',catch='place'),
]
if __name__=='__main__': main(V,run)
