"""A trial, to be replaced: the gradients of attention in one walk, by hand-made schedules, beside cuDNN.

``python benchmarks/attention_one_walk.py``
"""
import sys, time
import taskfuse as tf
from taskfuse import MemoryType, atoms, tiles
from taskfuse import ParallelType as P
from taskfuse.ir.expr import *
from taskfuse.ir.axes import axis, AxisKind, iteration_symbol as I
from taskfuse.ir.scalar import const, ZERO
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ops.build import broadcast_read, define_pointwise
from taskfuse.schedulers.back_to_back import *
from taskfuse.schedulers.back_to_back import _BackToBackWalk
from taskfuse.schedulers.back_to_back_cost import *
from taskfuse.schedulers.back_to_back import _BackToBackWalk, _factors, _sides
from taskfuse.schedulers.walk_tiles import *
import math
def fusion(b,h,m,n,d,C=64,R=128):
    f=tf.Fusion("gradients")
    with f:
        g,q=(tf.define_tensor([b,h,m,d],dtype=tf.bfloat16,name=x) for x in "gq")
        k,v=(tf.define_tensor([b,h,n,d],dtype=tf.bfloat16,name=x) for x in "kv")
        shift=tf.define_tensor([b,h,m],name="shift"); delta=tf.define_tensor([b,h,m],name="delta")
        T=lambda x: tf.permute(x,(0,1,3,2))
        s=tf.matmul(q,T(k),dtype=tf.float32)
        p=tf.exp2(s*(d**-0.5*1.4426950408889634)-tf.expand_dims(shift,3))
        ds=tf.cast(p*(tf.matmul(g,T(v),dtype=tf.float32)-tf.expand_dims(delta,3)),tf.bfloat16)
        dv=tf.matmul(T(tf.cast(p,tf.bfloat16)),g,dtype=tf.float32)
        dk=tf.matmul(T(ds),q,dtype=tf.float32)
        f.add_output(dv,dk)
    return f,ds
from taskfuse.ir.expr import Written
from taskfuse.ir.storage import resolve
from taskfuse.schedulers.back_to_back import _BackToBackWalk, _factors, _sides
C,R=64,128
STM=16
ORDER='vqk'
PARTS=None
SLOTS=0
DS=0
def early(s):
    return {"first":s.first,"elementwise":s.chunks,"turn":[s.dss],"values":[s.last[0]],"turned":[s.dqp],"keys":[s.last[1]],"sent":[s.sent]}

def raster(found, fusion):
    if "apart" not in sys.argv: return Spelled(tiles.raster(),"tf.tiles.raster()")
    b,h=(int(str(e)) for e in fusion.tensor("q").shape[:2])
    i0=I(0)
    return Spelled((i0//h%b,i0%h,i0//(b*h)),"heads first")

class Walk(_BackToBackWalk):
    def __init__(self, script, found, config, blocks, debug=False):
        super().__init__(script, found, config)
        self.blocks=blocks
        self.head=2
        self.debug=debug
    def _blocks(self, call):
        rows=self.batch
        for _ in range(rows, len(self.found.batch)): call.merge(0)
        call.split(rows, self.config.rows)
        call.rasterize(tuple(range(rows+1)), raster(self.found, self.fusion)).split(0,self.blocks)
        call.bind(1,P.BIDx)
    def apply(self):
        script, config, fusion = self.script, self.config, self.fusion
        walk = script.cascade(self.found.last, config.chunk, rows=config.rows)
        self.last=self.found.last
        self.first = tuple(tv for tv in walk if isinstance(tv.definition, Reduction) and not among(tv, self.last))
        # the turned product
        dsc=[tv for tv in walk if tv.dtype is tf.bfloat16][-1]
        k=fusion.tensor("k")
        i=[I(x) for x in range(7)]
        b,h,m,d=fusion.tensor("q").shape
        n=k.shape[2]
        root=[axis(a.extent) for a in dsc.root[:4]]+[axis(d),axis(n,AxisKind.REDUCTION)]
        dq=fusion.new_tensor(root,tf.float32)
        second=fusion.definition(self.last[1])
        fusion.define(Reduction(dq,COMBINES["add"],ELEMENTWISE["mul"],(Read(dsc,(i[0],i[1],i[2],i[3],i[5])),Read(k,(i[0],i[1],i[5],i[4]))),second.init))
        script.on(dq).split(5,R)
        dqp=script.new(dq,"rfactor",(6,))
        self.dqp=dqp
        start=define_pointwise(fusion,ELEMENTWISE["copy"],[b,h,m,d],(Literal(0.0,tf.float32),),tf.float32)
        sent=fusion.new_tensor([axis(a.extent) for a in dqp.logical],tf.float32)
        place=(i[0],i[1],i[2]*C+i[3],i[4])
        fusion.define(Update(sent,COMBINES["add"],(Read(start,place),broadcast_read(dqp,[a.extent for a in dqp.logical])),()))
        whole=fusion.new_tensor([axis(x) for x in (b,h,m,d)],tf.float32)
        fusion.define(Assemble(whole,(broadcast_read(start,start.shape),broadcast_read(sent,sent.shape)),(tuple(i[:4]),place)))
        fusion.add_output(whole)
        self.start,self.sent,self.whole=start,sent,whole
        fusion.remove_unread([dq])
        # copies
        outs=[tv for tv in fusion.outputs if not tv.is_input]
        self.held=[]; self.streamed=[]
        keys,(_,element)=Keys(fusion),self._walked(self.last[0])
        for tv in self.first:
            sides=_sides(keys,tv,_factors(fusion,tv),element)
            self.held.append(copied(script,tv,sides.places[0])); self._stream(tv,sides.places[1])
        self.held_k=self.held[0]
        self.dss=script.new(dsc,"cache_after",dqp,0)
        self.dqs=script.new(dqp,"cache_after",sent,1) if "bulk" in sys.argv else None
        if fusion.definition(dqp).operands[1].tensor is not self.held_k: script.through_view(dqp,1,self.held_k)
        script.on(self.dss).set_memory_type(MemoryType.Shared)
        made={out: script.new(out,"cache_before") for out in self.last if out.is_output}
        self.last=tuple(made.get(tv,tv) for tv in self.last)
        self.stored=[]; self.wide=[tv for tv in outs if tv is not whole]
        for tv in self.last:
            two=_factors(fusion,tv)
            place=next(k for k,r in zip(two.places,(two.a,two.b)) if not depends(fusion,r.tensor,self.first))
            self._stream(tv,place)
        self.columns=[]
        if "cols" in sys.argv:
            for e in needed(fusion):
                if isinstance(e,Pointwise):
                    for kk,o in enumerate(e.operands):
                        if isinstance(o,Read):
                            r=resolve(fusion,o)
                            if r.tensor.is_input and r.tensor.name in ("shift","delta"):
                                made=script.through_view(e.output,kk)
                                self.columns.append(made); self.streamed.append(made)
        for tv in (*self.held,*self.streamed): script.on(tv).set_memory_type(MemoryType.Shared)
        more=[] if self.dqs is None else [self.dqs]
        mineout=[self.dqp,self.dss,self.sent,self.start,*more]
        keys=Keys(fusion); along,element=self._walked(self.last[0])
        def has(tv,a): return any(x.extent is a.extent and keys.equal(x, a) for x in tv.root)
        code=[e.output for e in needed(fusion) if not fusion.is_view(e.output)]
        mine=[tv for tv in code if not among(tv,[*self.held,*self.streamed,*self.first,*self.last,*mineout])]
        self.chunks=[tv for tv in mine if has(tv,along) and has(tv,element)]
        self.results=[[tv for tv in mine if depends(fusion,tv,(last,))] for last in self.last]
        every=[tv for r in self.results for tv in r]
        self.rows=[tv for tv in mine if not among(tv,[*self.chunks,*every])]
        self._tiles()
        script.on(self.chunks[0]).propagate([self.dss],self.head+3)
        self.wide=[t for t in self.wide if t is not whole]
        self._registers()
        script.parallelize_like(self.first[0],[self.dss])
        tile=self.head+2
        call=script.on(self.dss)
        call.set_allocation_domain(Spelled(layouts.swizzled(128),"tf.layouts.swizzled(128)"))
        if DS: call.circular_buffer(DS)
        call.split(tile+1,STM).split(tile,STM).reorder({tile+2:tile+1})
        call.bind(tile,P.TIDx).bind(tile+1,P.Unroll)
        call.set_atom(atoms.STMATRIX_X4,(tile+2,tile+3))
        # dqp: [b,h,c,e,d,(n)] loop [b,h,c,e,d,j,n'] 
        print("dqp loop",self.dqp.loop)
        call=script.on(self.dqp)
        call.reorder([0,1,5,2,4,3,6])  # b h j c d e n'
        self._raster(call)  # t B c d e n'
        call.split(3,64).bind(3,P.TIDy)  # t B c y d64 e n'
        call.reorder({5:4})             # t B c y e d n'
        multiply(script,self.dqp,4,64)
        call=script.on(self.sent)       # b h c e d j
        call.reorder([0,1,5,2,4,3])
        self._raster(call)
        call.split(3,64).bind(3,P.TIDy).reorder({5:4})
        if self.dqs is None:
            call.fragment((4,5))
            if "v2" in sys.argv: call.bind(-1,P.Vectorize)
        if self.dqs is not None:
            call=script.on(self.sent)
            call.split(5,32).reorder({5:4})  # t B c y p e 32
            call.set_atom(atoms.TMA_STORE,(5,6))
            call.bind(4,P.Unroll)
            call=script.on(self.dqs)
            call.reorder([0,1,5,2,4,3])
            self._raster(call)
            call.split(3,64).bind(3,P.TIDy).reorder({5:4})
            call.split(5,32).reorder({5:4})
            call.set_memory_type(MemoryType.Shared).set_allocation_domain(Spelled(layouts.swizzled(128),"tf.layouts.swizzled(128)"))
            if SLOTS: call.circular_buffer(SLOTS)
            call.bind(4,P.Unroll)
            call.fragment((5,6))
            call.bind(-1,P.Vectorize)
        for tv in self.first: multiply(script, tv, self.head+2, config.chunk)
        for tv, columns in zip(self.last, self.found.columns): multiply(script, tv, self.head+2, columns)
        self._rings()
        self._share()
        zero=script.new(self.start,"cache_before"); self.zero=zero
        call=script.on(self.start)
        call.merge(0).merge(0).merge(0).split(0,4).split(0,128).split(0,2).split(0,self.blocks)
        call.bind(1,P.BIDx).bind(2,P.TIDy).bind(3,P.TIDx)
        call.propagate([zero],5)
        script.parallelize_like(self.start,[zero])
        call.bind(4,P.Vectorize)
        script.on(zero).inline_at(4)
        self._roles()
    def _raster(self, call):
        call.rasterize((0,1,2), raster(self.found, self.fusion)).split(0,self.blocks)
        call.bind(1,P.BIDx)
    def _rings(self):
        for tv in (*self.held, *self.streamed):
            if among(tv, self.columns):
                self.script.on(tv).circular_buffer(self.config.stages).set_atom(atoms.TMA_LOAD, (-1,))
                continue
            call = swizzle(self.script, tv)
            if among(tv, self.streamed): call.circular_buffer(self.config.stages)
            call.set_atom(atoms.TMA_LOAD, (-2, -1))
    def _share(self):
        script, head = self.script, self.head
        results = [tv for group in self.results for tv in group]
        inside = [*self.streamed, *self.first, *self.chunks, self.dss, self.dqp, *([] if self.dqs is None else [self.dqs])]
        kept = [*self.held, *inside, *self.last, *self.rows, *results]
        every = [e.output for e in self.fusion.exprs() if among(e.output, kept) and not e.output.is_output]
        share_walk(script, every, inside, head)
        for tv in reversed(self.chunks):
            uses = storage_uses(self.fusion, tv)
            if len(uses) != 1 or not among(uses[0].output, self.chunks): continue
            is_masked = any(isinstance(e, FirstValid) for e in (tv.definition, *uses))
            is_early = self._latest(tv) < self._latest(uses[0].output)
            if not is_masked and not is_early: script.on(tv).inline_at(head + 8)
        share_results(script, results, self.stored, head)
    def _roles(self):
        script = self.script
        load = script.task([*self.held, *self.streamed], "load")
        parts = PARTS(self) if PARTS else {"first": self.first, "elementwise": self.chunks, "turn":[self.dss], "last": self.last, "turned":[self.dqp], "sent":[self.sent]}
        T=lambda tvs,name: script.task(tvs,name)
        tasks=[*([T(self.rows,"rows")] if self.rows else []), T(self.first,"first"), T(self.chunks,"elementwise"), T([self.dss],"turn")]
        if "early" in sys.argv:
            names={"v":("values",[self.last[0]]),"q":("turned",[self.dqp]),"k":("keys",[self.last[1]])}
            tasks.append(script.grouped([T(names[x][1],names[x][0]) for x in ORDER],"sums"))
        else: tasks+=[T(self.last,"last"),T([self.dqp],"turned")]
        own = "role" in sys.argv
        tasks+=[T([*([] if self.dqs is None else [self.dqs]),*([] if own else [self.sent])],"sent"),T([tv for group in self.results for tv in group], "results")]
        script.task([self.zero,self.start],"start")
        if own:
            adds=script.task([self.sent],"adds")
            consumer=script.grouped(tasks,"consumer")
            script.group([load,consumer,adds],"roles").parallelize(P.TIDy)
            script.node(load).registers()
            script.node(consumer).registers()
        else:
            script.make_roles(load, script.grouped(tasks, "consumer"))

import torch
from attention import CASES
from reporting import in_turn
from attention_backward import theirs, wanted, errors
import attention_backward

def scheduled(b,h,m,n,d,BL,stages,flags,order):
    global ORDER
    ORDER=order
    sys.argv[1:]=list(flags)
    f,ds=fusion(b,h,m,n,d)
    Walk(Script(f),find(f),BackToBackConfig(2,64,stages),BL).apply()
    f.restate()
    return f

def main():
    case=next(c for c in CASES if c.name=="4096")
    q,k,v=case.arguments(); g=torch.randn_like(q)
    others,out,sums=theirs(case,g,q,k,v)
    exact=wanted(case,g,q,k,v)
    limits=[2*min(e) for e in zip(*(errors(case,call(),exact) for call in others.values()),strict=True)]
    shift=sums*1.4426950408889634
    delta=(g.float()*out.float()).sum(-1)
    scale=case.depth**-0.5
    calls=dict(others)
    variants=[
        ("vectors of 2",2,("early","v2"),0,0),
        ("bulk, 2 slots",2,("early","bulk"),2,0),
        ("bulk, 2 slots, heads first",2,("early","bulk","apart"),2,0),
        ("bulk, 1 slot",2,("early","bulk"),1,0),
        ("bulk, 1 slot, 3 stages",3,("early","bulk"),1,0),
        ("bulk, 1 slot, 2 of dS",2,("early","bulk"),1,2),
        ("bulk, 2 slots, columns in Shared memory",2,("early","bulk","cols"),2,0),
        ("bulk, 2 slots, plain order",2,("bulk",),2,0),
    ]
    order="vqk"
    global SLOTS, DS
    for name,stages,flags,SLOTS,DS in variants:
        t=time.time()
        try:
            f=scheduled(case.batch,case.heads,case.queries,case.keys,case.depth,132,stages,flags,order)
            kernel=tf.lower(f); kernel.verify().require()
            r=kernel.resources(fast_math=True).compiled
            run=tf.compile(kernel,backend="cuda",fast_math=True)
        except Exception as e:
            print(name,"failed:",str(e)[:300],flush=True); continue
        args={"g":g,"q":q,"k":k,"v":v,"shift":shift,"delta":delta}
        ordered=[args[tv.name] for tv in f.inputs]
        outs=tuple(torch.full([int(str(e)) for e in tv.shape],torch.nan,device="cuda") for tv in f.outputs)
        run(*ordered,out=outs); torch.cuda.synchronize()
        dv,dk,dq=outs
        off=errors(case,[dq*scale,dk*scale,dv],exact)
        words=f"{name}: {r.registers} regs, {r.spill_stores} spilled, off {[f'{e:.2e}' for e in off]} of limits {[f'{e:.2e}' for e in limits]}, made in {time.time()-t:.0f} s"
        print(words,flush=True)
        calls[words]=lambda run=run,ordered=ordered,outs=outs: run(*ordered,out=outs)
    whole=tf.compile(attention_backward.fusion(case),backend="cuda",fast_math=True)
    made=tuple(torch.full_like(x,torch.nan) for x in (q,k,v))
    args={"g":g,"q":q,"k":k,"v":v,"o":out,"sums":sums}
    given=[args[tv.name] for tv in attention_backward.fusion(case).inputs]
    calls["two walks, whole"]=lambda: whole(*given,out=made)
    dq32=torch.zeros_like(q,dtype=torch.float32); dqb=torch.empty_like(q)
    calls["torch: round the gradient of queries"]=lambda: torch.mul(dq32,scale,out=dq32) 
    times=in_turn(list(calls.values()))
    for (name,us) in zip(calls,times,strict=True):
        print(f"{us:9.1f} us {times[0]/us:5.2f}x {2.5*case.flop/us/1e6:5.0f} TFLOP/s  {name}",flush=True)

if __name__=="__main__":
    main()
