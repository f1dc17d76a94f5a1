#!/usr/bin/env python3
"""Commit waits, time-outs and fences: once a write is acknowledged, no look-up that begins later misses it.

A writer's client gets its acknowledgement from the proxy: commit record in WAL -> visible -> the proxy has the database's answer
and end() -> waits until applied >= end(), or time-out: a fence at end() on the table that was written, then the acknowledgement.
With synchronous_commit=off a commit is visible before it is flushed, and the stream delivers flushed commits only. A fence by time
is for writes whose end() is not known: hits need a lease whose reading was asked for after the fence was set.

A look-up has two steps with anything in between: it reads fences and the applied position, and it gets the entry. One key, two
writers that match it; fills one after the other, with PENDING and S0.

Checked: RYW (a hit reflects all that was acknowledged when its look-up began) and FRESH.
"""
from collections import namedtuple
from search import Switches, explore, main

class P(Switches):
    hold=True          # the acknowledgement waits until applied >= end()
    timeout=True       # ... or until a time-out
    fence='lsn'        # what a time-out sets: 'lsn' | 'time' | None | 'other': on a table that was not written
    first='fence'      # on a time-out comes first the 'fence' | the 'ack'
    end='after'        # end() is read 'after' the commit | 'before' it | 'flush': after, but the flush position
    stamp='asked'      # the time of a lease is when its reading was 'asked' for | when it was 'answered'
    order='fences'     # a look-up reads 'fences' and applied first | gets the 'entry' first
    link=None          # the stream breaks once and goes on with the same slot, entries kept: 'kept' fences | 'forgotten'
    flush=False        # flushing is a step of its own
    fills=2

# asof: the lease in force was asked for after the last fence by time   lease: None | (phase, asked after that fence, end)
# fill: (phase, candidates, S0, result, read_end)   rd: None | (phase, acknowledged at the start, entry, applied)
St=namedtuple('St','wal fl vis acked pcs ends dl pend ent fill left fence asof lease rd link bad')

def run(p):
    W=(0,1)
    init=St((),0,frozenset(),frozenset(),(0,0),(0,0),0,frozenset(),None,None,p.fills,0,True,None,None,'up','')
    show=lambda xs:'{'+','.join(f'W{x}' for x in sorted(xs))+'}'
    put=lambda t,i,v:t[:i]+(v,)+t[i+1:]
    def check(s):
        if s.bad: return s.bad
        if s.ent is not None and not frozenset(s.wal[:s.dl])<=s.ent[0]: return ('FRESH',f'entry={show(s.ent[0])}, delivered {show(s.wal[:s.dl])}')
        return None
    def set_fence(s,w):
        if p.fence=='lsn': return dict(fence=max(s.fence,s.ends[w]))
        if p.fence=='time': return dict(asof=False,lease=s.lease and put(s.lease,1,False))
        return {}
    def steps(s):
        out=[]
        def add(lab,**k): out.append((lab,s._replace(**k)))
        for w in W:
            st=s.pcs[w]; go=lambda n:put(s.pcs,w,n)
            if st==0: add(f'W{w}: commit record in WAL',wal=s.wal+(w,),fl=s.fl if p.flush else len(s.wal)+1,pcs=go(1),ends=put(s.ends,w,len(s.wal)))
            elif st==1: add(f'W{w}: visible',vis=s.vis|{w},pcs=go(2))
            elif st==2:
                e={'after':len(s.wal),'before':s.ends[w],'flush':s.fl}[p.end]
                add(f'W{w}: the proxy has the answer, end()={e}',pcs=go(3),ends=put(s.ends,w,e))
            elif st==3:
                if not p.hold or s.dl>=s.ends[w]: add(f'W{w}: acknowledged',acked=s.acked|{w},pcs=go(5))
                elif p.timeout:
                    if p.first=='fence': add(f'W{w}: time-out, fence {p.fence} {s.ends[w]}',pcs=go(4),**set_fence(s,w))
                    else: add(f'W{w}: time-out, acknowledged',acked=s.acked|{w},pcs=go(4))
            elif st==4:
                if p.first=='fence': add(f'W{w}: acknowledged',acked=s.acked|{w},pcs=go(5))
                else: add(f'W{w}: fence {p.fence} {s.ends[w]}',pcs=go(5),**set_fence(s,w))
        if s.fl<len(s.wal): add(f'WAL flushed up to {s.fl+1}',fl=s.fl+1)
        if s.dl<s.fl and s.link!='down':
            x=s.wal[s.dl]; f=s.fill
            add(f'stream delivers W{x}',dl=s.dl+1,ent=None,pend=s.pend|{x},fill=f and put(f,1,f[1]|{x}))
        if p.link and s.link=='up': add('the stream breaks',link='down')
        elif s.link=='down': add('the same slot goes on, entries kept',link='again',fence=s.fence if p.link=='kept' else 0)
        if p.fence=='time':
            l=s.lease
            if l is None:
                if not s.asof: add('lease: asks for end()',lease=('asked',True,0))
            elif l[0]=='asked': add(f'lease: end()={len(s.wal)}',lease=('read',l[1],len(s.wal)))
            elif l[0]=='read': add('lease: answer arrives',lease=('answer',l[1] or p.stamp=='answered',l[2]))
            elif s.dl>=l[2]: add('lease renewed',asof=s.asof or l[1],lease=None)
        # look-ups: two steps
        passed=s.dl>=s.fence and s.asof and s.link!='down'
        if s.rd is None:
            if p.order=='fences' and passed and s.ent: add(f'look-up begins: fences passed, applied={s.dl}',rd=('entry',s.acked,None,s.dl))
            elif p.order=='entry' and s.ent: add(f'look-up begins: gets {show(s.ent[0])}',rd=('fences',s.acked,s.ent,0))
        else:
            e=s.ent if p.order=='fences' else s.rd[2]
            hit=e is not None and (s.rd[3]>=e[1] if p.order=='fences' else passed and s.dl>=e[1])
            bad=('RYW',f'hit {show(e[0])}, acknowledged before {show(s.rd[1])}') if hit and not s.rd[1]<=e[0] else ''
            add(f'HIT {show(e[0])}' if hit else 'bypass',rd=None,bad=bad)
        # fills
        f=s.fill
        if f is None:
            if s.ent is None and s.left: add(f'fill registered (pending {show(s.pend)})',fill=('reg',s.pend,None,None,0),left=s.left-1)
        elif f[0]=='reg': add(f'S0={show(s.vis)}',fill=('s0',f[1],s.vis,None,0))
        elif f[0]=='s0': add(f'query: result={show(s.vis)}',fill=('done',f[1],f[2],s.vis,0))
        elif f[0]=='done': add(f'end()={len(s.wal)}',fill=('end',*f[1:4],len(s.wal)))
        else: add(f'result {show(f[3])} arrives: '+('not cached' if f[1]-f[2] else 'INSTALL'),fill=None,ent=s.ent if f[1]-f[2] else (f[3],f[4]))
        return out
    return explore(init,check,steps)

V=[
 P('L1 no commit wait','VIOLATION',hold=False),
 P('L2 commit wait until applied >= end()','HOLDS',timeout=False),
 P('L3 L2 with a time-out that sets no fence','VIOLATION',fence=None),
 P('L4 time-out: fence, then acknowledgement','HOLDS'),
 P('L5 time-out: acknowledgement, then fence','VIOLATION',first='ack'),
 P('L6 fence on another table than was written','VIOLATION',fence='other'),
 P('L7 end() read before the commit','VIOLATION',end='before',timeout=False),
 P('L8 end() = the flush position, with synchronous_commit=off','VIOLATION',end='flush',flush=True),
 P('L9 end() = the insert position, with synchronous_commit=off','HOLDS',flush=True,fast=dict(fills=1)),
 P('L10 a look-up gets the entry before it reads fences and applied','VIOLATION',order='entry'),
 P('L11 the same slot goes on, fences kept','HOLDS',link='kept',fast=dict(fills=1)),
 P('L12 the same slot goes on, fences forgotten','VIOLATION',link='forgotten'),
 P('L13 fence by time: hits need a lease asked for after it','HOLDS',fence='time',fast=dict(fills=1)),
 P('L14 fence by time: hits need a lease answered after it','VIOLATION',fence='time',stamp='answered'),
]
if __name__=='__main__': main(V,run)
